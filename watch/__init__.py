"""The watch over a live engine: what every step reads and writes, checked at the cost of the step.

`live_memory.py` is the fast oracle (`reference/step_oracle.py` is its specification), `watcher.py`
its life: counts, findings, modes, the switch that turns it off. Nothing here knows an engine;
`targets/vllm_watch.py` taps vLLM.
"""
