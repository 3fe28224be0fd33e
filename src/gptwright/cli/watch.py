"""`gptwright watch`."""

import sys
from pathlib import Path

import click

from gptwright.cli.options import json_option, print_json
from gptwright.errors import RunError

PORT = 8642


@click.command(
    help="""Watch all runs below FOLDER in the browser, as they train; and diagnose any log you paste.

    Our runs and logs of other trainers are shown with their state, curves, time left, energy and diagnosis.
    The page is for this machine alone; with --share whoever has its address, token included, can open it
    from the same network. Nothing outside FOLDER is read, and nothing leaves the machine.
    """
)
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: this machine alone]")
@click.option("--share", is_flag=True, help="Let others in the network open the page, with a token.")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
@json_option
def command(
    folder: Path, port: int, host: str | None, share: bool, open_browser: bool, as_json: bool
) -> None:
    """Serves the live page until Ctrl-C."""
    from rich.markup import escape

    from gptwright.report.live.serve import find_place, serve
    from gptwright.report.terminal import console_for

    if not folder.is_dir():
        raise RunError(f"{folder} is no folder", fix="give the folder that holds your runs, such as out")
    place = find_place(host=host, port=port, share=share)
    if as_json:
        print_json({"schema": "gptwright.watch/1", "folder": str(folder.resolve()), "url": place.url})
        # Whoever reads it waits for the address, not for the end of the server.
        sys.stdout.flush()
    else:
        console = console_for()
        console.print(
            f"watching {escape(str(folder.resolve()))} at [bold]{escape(place.url)}[/]", soft_wrap=True
        )
        if share:
            console.print("whoever has this address can see these runs; Ctrl-C ends it", soft_wrap=True)
    if open_browser:
        click.launch(place.url)
    serve(folder, place)
