"""Reports: certificates, findings, traces, campaigns and kernels as text, pages and files."""
