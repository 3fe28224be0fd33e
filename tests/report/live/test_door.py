"""Who is let in, and what is never given out: asked of a real server, byte by byte."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gptwright.report.live.guard import LARGEST_BODY
from tests.report.live.conftest import Serve, Server


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory, nanogpt_log: str) -> Server:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "mine").mkdir()
    (folder / "mine" / "log.txt").write_text(nanogpt_log)
    return serve(folder)


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    assert server.host.startswith("127.0.0.1:")
    port = int(server.host.split(":")[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine is in no network")
        address = probe.getsockname()[0]
    with socket.socket() as caller, pytest.raises(OSError, match="refused"):
        caller.connect((address, port))


def test_the_page_may_load_and_run_nothing_but_its_own(server: Server) -> None:
    reply = server.ask("/")
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in reply.headers
    assert "http" not in reply.body.replace("http-equiv", "")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_is_not_the_servers_gets_nothing(server: Server, host: str) -> None:
    port = server.host.split(":")[1]
    for path in ("/", "/events", "/assets/watch.js"):
        assert server.ask(path, Host=host.format(port=port)).status == 421


def test_other_sites_get_nothing_and_only_the_page_may_send(server: Server) -> None:
    assert server.ask("/", Host=f"localhost:{server.host.split(':')[1]}").status == 200
    assert server.ask("/events", Origin="https://evil.example").status == 403
    assert server.ask("/", Origin="null").status == 403
    log = {"log": "step 0: train loss 4.2, val loss 4.2"}
    assert server.diagnose(log).status == 200
    assert server.diagnose(log, Origin="https://evil.example").status == 403
    assert server.diagnose(log, **{"X-Gptwright-Token": "guess"}).status == 403
    body = json.dumps(log).encode()
    without_origin = server.ask("/diagnose", method="POST", body=body, **{"X-Gptwright-Token": server.token})
    assert without_origin.status == 403
    assert server.ask("/diagnose").status == 405
    assert server.ask("/", method="PUT").status == 405
    assert server.ask("/", method="DELETE").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/..%2f..%2fapp.py",
        "/assets/%2e%2e/app.py",
        "/../../../../etc/passwd",
        "/assets//etc/passwd",
        "/mine/log.txt",
        "/assets/index.html",
        "/assets/page.js",
        "//etc/passwd",
    ],
)
def test_there_are_no_other_files(server: Server, path: str) -> None:
    reply = server.ask(path)
    assert reply.status in (404, 405)
    assert "root:" not in reply.body


def test_a_run_is_looked_up_and_never_opened_by_name(server: Server) -> None:
    secret = server.folder.parent / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "log.txt").write_text("step 0: train loss 1.0, val loss 1.0\n" * 3)

    def listed(kind: str, document: dict[str, object]) -> bool:
        assert kind == "list"
        return True

    for name in ("../secret", "..%2Fsecret", str(secret), "mine/../../secret", "%00", "mine/log.txt"):
        document = server.events(name.replace("/", "%2F"), until=listed)
        assert [run["id"] for run in document["runs"]] == ["mine"]


def test_sizes_are_bounded_while_they_are_read(server: Server) -> None:
    fits = server.diagnose({"log": "x" * (LARGEST_BODY - 100)})
    assert fits.status == 200
    assert "no line of log.txt is known" in json.loads(fits.body)["error"]["problem"]
    too_long = server.diagnose({"log": "x" * LARGEST_BODY})
    assert (too_long.status, "too long" in too_long.body) == (413, True)
    assert "gptwright diagnose FILE" in too_long.body


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "no JSON object"),
        ({"log": 3}, "texts"),
        ({"log": " \n"}, "there is no log"),
        ({"log": "x", "facts": {"path": "/etc/passwd"}}, "no fact that is known"),
        ({"log": "x", "facts": {"device_count": "many"}}, "not a whole number"),
        ({"log": "no trainer prints this"}, "no line of log.txt is known"),
    ],
)
def test_what_is_no_log_is_an_answer_and_no_crash(server: Server, document: object, problem: str) -> None:
    reply = server.diagnose(document)
    assert reply.status == 200
    assert problem in json.loads(reply.body)["error"]["problem"]
    assert "/tmp" not in reply.body


def test_a_pasted_log_gives_what_the_command_line_gives(
    server: Server, nanogpt_log: str, tmp_path: Path
) -> None:
    config = 'n_layer = 6\nn_head = 6\nn_embd = 384\nblock_size = 256\nbatch_size = 64\nout_dir = "124M"\n'
    (tmp_path / "log.txt").write_text(nanogpt_log)
    (tmp_path / "config.toml").write_text(config)
    command = [sys.executable, "-m", "gptwright", "diagnose", str(tmp_path), "--device", "RTX 4070", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pasted = server.diagnose({"log": nanogpt_log, "config": config, "facts": {"device": "RTX 4070"}})
    answer = json.loads(pasted.body)
    assert answer["diagnosis"] == json.loads(said)
    assert {"data-stall", "mfu-basis"} <= {finding["id"] for finding in answer["diagnosis"]["findings"]}
    assert json.loads(answer["charts"])["figures"][0]["id"] == "loss"


def test_a_shared_page_wants_its_token_for_everything(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path, "--host", "127.0.0.1", "--share")
    token = server.url.split("?token=")[1]
    assert len(token) >= 32
    for path in ("/", "/events", "/assets/watch.js", "/?token=", "/?token=guess", f"/events?token={token}"):
        assert server.ask(path).status == 401
    entered = server.ask(f"/?token={token}")
    assert (entered.status, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    inside = cookie.split(";")[0]
    assert server.ask("/", Cookie=inside).status == 200
    assert server.ask("/", Cookie=inside, Host="evil.example").status == 421
    assert server.ask("/", Cookie="gptwright=guess; gptwright").status == 401


def test_an_address_open_to_others_has_to_be_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gptwright", "watch", str(tmp_path), "--port", "0", "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "add --share" in done.stderr
    command = [sys.executable, "-m", "gptwright", "watch", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "none is no folder" in done.stderr


def test_a_port_that_is_taken_is_said(server: Server, tmp_path: Path) -> None:
    port = server.host.split(":")[1]
    command = [sys.executable, "-m", "gptwright", "watch", str(tmp_path), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--port 0 takes a free one" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there another signal is sent")
def test_ctrl_c_ends_it_without_a_word_though_pages_are_open(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gptwright", "watch", str(tmp_path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        with closing(http.client.HTTPConnection(urlsplit(started["url"]).netloc, timeout=60)) as page:
            page.request("GET", "/events")
            answer = page.getresponse()
            assert answer.readline() == b"event: list\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            assert answer.read().startswith(b"data: ")
    assert (process.returncode, out, err) == (0, "", "")
