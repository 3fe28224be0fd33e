"""`python -m gptwright`, the same as the `gptwright` command."""

from gptwright.cli.main import main

if __name__ == "__main__":
    main()
