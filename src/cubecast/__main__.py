"""`python -m cubecast` is the `cubecast` command."""

from cubecast.cli import main

if __name__ == "__main__":
    main()
