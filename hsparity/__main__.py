"""python -m hsparity"""

from .cli.main import run

run()
