"""Execute a notebook: ``python execute_notebook.py FILE``. An error in a cell ends it with the traceback of the cell.

A process of its own, because the sockets to a kernel give warnings that are errors in our tests.
"""

import sys

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient


class SameInterpreter(KernelSpecManager):
    """Whatever kernels are installed elsewhere: the interpreter that runs this."""

    def get_kernel_spec(self, kernel_name):
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, language="python", display_name=kernel_name)


def main(path):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        cell.execution_count, cell.outputs = None, []  # what is there afterwards is from this run
    manager = AsyncKernelManager(kernel_spec_manager=SameInterpreter())
    NotebookClient(notebook, km=manager, timeout=None, resources={"metadata": {"path": "."}}).execute()
    left_out = sum(cell.execution_count is None for cell in cells)
    if left_out:
        return f"{left_out} of {len(cells)} cells were not executed"
    figures = sum("image/png" in output.get("data", ()) for cell in cells for output in cell.outputs)
    print(f"{len(cells)} cells, {figures} figures")
    return 0 if figures else "no figure was drawn"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
