"""The kill matrix: planted bugs against everything that searches for bugs, and who caught what.

A subject (`subject.py`) is a row, a detector (`detector.py`) a column, a cell the outcomes over a
number of seeds. The command is `poolproof bugs`; the faulty kernels have a matrix of their own,
`poolproof kernels --faulty`.
"""
