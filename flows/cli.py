"""The command line. Prefect, decoders and the Hub client are imported inside the commands that need them:
`--help` answers at once, and a decoder's process, which imports this module again, stays small.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from clipshards.disk import parse_bytes
from clipshards.errors import ClipshardsError, IncompleteError, NoSpaceError, UsageError

app = typer.Typer(
    name="clipshards",
    help="Video question-answering data sets on the Hub → training-ready shards with pre-decoded frames.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
recipe_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write and check recipes.")
app.add_typer(recipe_app, name="recipe")

Source = Annotated[str, typer.Argument(help="hf://datasets/OWNER/NAME[@REVISION], or a folder of the same shape.")]
Out = Annotated[Path, typer.Argument(help="Output folder; OUT/current is the finished snapshot.")]
RecipeOption = Annotated[str, typer.Option("--recipe", help="Name of a built-in recipe, or a TOML file.")]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="Sampling rules of the training split: a name or a TOML file.")
]
PartsOption = Annotated[str, typer.Option("--parts", help="Use only parts whose path or name matches.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many clips of each part, for a first try.")
]
QualityOption = Annotated[str, typer.Option("--quality", help="JPEG quality 1–100, or 'lossless' (PNG).")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Decoder processes; default: one for each core.")
]
DecoderOption = Annotated[
    str,
    typer.Option(
        "--decoder",
        metavar="auto|cpu|cuda|ffmpeg",
        help="auto: cuda (NVDEC) where a probe decode succeeds, else cpu; ffmpeg: the program.",
    ),
]
ExtractOption = Annotated[
    bool, typer.Option("--extract", help="Also write the clips as plain files to OUT/videos.")
]
AllClipsOption = Annotated[bool, typer.Option("--all-clips", help="Also store clips that no row names.")]
DiskBudgetOption = Annotated[
    str | None,
    typer.Option("--disk-budget", help="Most that downloads and unfinished shards take at once, such as 500GB."),
]
RetryOption = Annotated[
    bool, typer.Option("--retry-quarantined", help="Decode again what could not be decoded in an earlier run.")
]
MaxRejectedOption = Annotated[
    float, typer.Option("--max-rejected", min=0, max=1, help="Share of clips or rows that may be rejected.")
]
TransportOption = Annotated[
    str,
    typer.Option(
        "--transport",
        metavar="http|xet",
        help="http: our own download, goes on where it broke off; xet: huggingface_hub's.",
    ),
]
PlanJsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout, totals last.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Argument(help="Output folder.")] = Path("demo/out"),
    source: Annotated[
        Path | None, typer.Option("--source", help="Where the data set is built; default: OUT/../source.")
    ] = None,
    decoder: DecoderOption = "auto",
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a small GRASP-shaped data set, serve it as a Hub on loopback, prepare and verify it.

    Example: clipshards demo
    """
    folder = source or out.parent / "source"
    with _errors_for_people(out):
        from clipshards.decode.choice import choose_decoder
        from clipshards.demo import build_demo
        from clipshards.hub.server import HubServer

        choose_decoder(decoder)  # a wrong one is answered before the work
        _say(as_json, f"building the demo data set in {folder}")
        build_demo(folder, workers=workers or os.cpu_count() or 1)
        with HubServer(folder) as hub:
            _say(as_json, f"serving it on {hub.endpoint} as hf://datasets/demo/GRASP")
            totals = _prepare(
                "hf://datasets/demo/GRASP",
                out,
                as_json,
                decoder=decoder,
                workers=workers,
                endpoint=hub.endpoint,
                max_rejected=0.02,
            )
        _finish(totals, as_json)
        _verify(out, as_json)


@app.command()
def plan(
    source: Source,
    out: Out,
    recipe: RecipeOption = "grasp",
    profile: ProfileOption = None,
    parts: PartsOption = "*",
    limit: LimitOption = None,
    quality: QualityOption = "95",
    decoder: DecoderOption = "auto",
    workers: WorkersOption = None,
    all_clips: AllClipsOption = False,
    disk_budget: DiskBudgetOption = None,
    as_json: PlanJsonOption = False,
) -> None:
    """Say what a run would fetch, decode and write, and how long that takes; nothing of it is done.

    Example: clipshards plan hf://datasets/interlive/GRASP OUT
    """
    with _errors_for_people():
        from flows.planning import plan_run
        from flows.reporting import print_plan
        from flows.settings import make_settings

        settings = make_settings(
            source,
            out,
            recipe=recipe,
            profile=profile,
            parts=parts,
            limit=limit,
            quality=_parse_quality(quality),
            decoder=decoder,
            workers=workers,
            all_clips=all_clips,
            disk_budget=parse_bytes(disk_budget, "--disk-budget") if disk_budget else None,
        )
        print_plan(plan_run(settings), as_json)


@app.command()
def prepare(
    source: Source,
    out: Out,
    recipe: RecipeOption = "grasp",
    profile: ProfileOption = None,
    parts: PartsOption = "*",
    limit: LimitOption = None,
    quality: QualityOption = "95",
    decoder: DecoderOption = "auto",
    workers: WorkersOption = None,
    extract: ExtractOption = False,
    all_clips: AllClipsOption = False,
    disk_budget: DiskBudgetOption = None,
    retry_quarantined: RetryOption = False,
    max_rejected: MaxRejectedOption = 0.01,
    transport: TransportOption = "http",
    as_json: JsonOption = False,
) -> None:
    """Fetch, verify, decode and write shards and tables; run it again to go on where it stopped.

    Example: clipshards prepare hf://datasets/interlive/GRASP OUT
    """
    with _errors_for_people(out):
        totals = _prepare(
            source,
            out,
            as_json,
            recipe=recipe,
            profile=profile,
            parts=parts,
            limit=limit,
            quality=_parse_quality(quality),
            decoder=decoder,
            workers=workers,
            extract=extract,
            all_clips=all_clips,
            disk_budget=parse_bytes(disk_budget, "--disk-budget") if disk_budget else None,
            retry_quarantined=retry_quarantined,
            max_rejected=max_rejected,
            transport=transport,
        )
        _finish(totals, as_json)


@app.command()
def refresh(
    out: Out,
    workers: WorkersOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what changed; nothing is done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring OUT to the present state of its source; only what changed is fetched and decoded.

    Example: clipshards refresh OUT
    """
    with _errors_for_people(out):
        from flows.changes import diff_of_source, plan_refresh

        plan = plan_refresh(out)
        if plan.is_current:
            _finish({"snapshot": str(plan.snapshot), "changed": "nothing"}, as_json)
        elif dry_run:
            _finish({"source": plan.source, "commit": plan.commit, **asdict(diff_of_source(plan))}, as_json)
        else:
            _finish(_prepare(plan.source, out, as_json, workers=workers, **plan.options), as_json)


@app.command()
def verify(
    out: Out,
    decode: Annotated[
        int, typer.Option("--decode", min=0, help="Also decode so many random views again and compare the pixels.")
    ] = 0,
    repair: Annotated[bool, typer.Option("--repair", help="Make what is damaged again, and nothing else.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every hash, table and sample of the current snapshot.

    Example: clipshards verify OUT --decode 20
    """
    with _errors_for_people():
        _verify(out, as_json, decode=decode, repair=repair)


@app.command()
def report(
    out: Out,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    serve_it: Annotated[
        bool, typer.Option("--serve", help="Serve it on this machine: its explorer then has all examples.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of --serve; 0: any.")] = 8610,
    as_json: JsonOption = False,
) -> None:
    """Where the page of the current snapshot is: numbers, examples to look at, and what was left out.

    Example: clipshards report OUT --open
    """
    with _errors_for_people():
        from flows.showing import find_page, open_page, print_place, serve_page

        if serve_it:
            serve_page(out, port, open_it, as_json)
        else:
            page = find_page(out, lambda text: _say(as_json, text))
            print_place(str(page), as_json)
            if open_it:
                open_page(page.as_uri())


@app.command()
def doctor(
    out: Annotated[Path, typer.Argument(help="Where a run would write.")] = Path(),
    recipe: RecipeOption = "grasp",
    as_json: JsonOption = False,
) -> None:
    """Is this machine ready? Packages, decoders, disk, Hub, Prefect, clock; exit 0 only without problems.

    Example: clipshards doctor OUT --json
    """
    with _errors_for_people():
        from clipshards.doctor import examine
        from clipshards.errors import IncompleteError
        from clipshards.hub.source import HubSource
        from clipshards.recipe import load_recipe
        from flows.prefect_check import check_prefect

        num_problems = 0
        for check in [*examine(out, HubSource(load_recipe(recipe).repo)), check_prefect()]:
            num_problems += check.status == "problem"
            if as_json:
                print(json.dumps({"event": "check", **check._asdict()}), flush=True)
            else:
                todo = f" → {check.todo}" if check.todo else ""
                typer.echo(f"{check.status:8} {check.name:16} {check.what}{todo}")
        if num_problems:
            raise IncompleteError(f"{num_problems} problem(s): what to do stands at the end of each line")


@app.command()
def score(
    predictions: Annotated[
        Path,
        typer.Argument(help="JSON: the public evaluator's list of results, or an object id → text of the model."),
    ],
    out: Out,
    write: Annotated[
        Path | None, typer.Option("--write", help="Where the JSON goes; default: PREDICTIONS with .score.json.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Accuracy on GRASP-Bench by category, group and difficulty, with 95 % intervals.

    Example: clipshards score results.json OUT
    """
    with _errors_for_people():
        from flows.scoring import score_file

        score_file(predictions, out, write or predictions.with_suffix(".score.json"), as_json)


@app.command()
def gc(
    out: Out,
    keep: Annotated[int, typer.Option("--keep", min=1, help="So many of the latest snapshots stay.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Remove old snapshots and what runs left behind; the current snapshot always stays.

    Example: clipshards gc OUT --keep 2
    """
    with _errors_for_people():
        from clipshards.output import current_snapshot
        from manifests.gc import collect_garbage
        from manifests.lock import hold_output

        current_snapshot(out)  # before anything is made in a folder that is none of ours
        with hold_output(out):
            freed = collect_garbage(out, keep)
        _finish({"removed": list(freed.snapshots), "freed_bytes": freed.bytes}, as_json)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="A data set as a folder.")],
    repo: Annotated[str, typer.Option("--repo", help="Name under which it is served.")] = "demo/GRASP",
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; files come from the port after it.")] = 8600,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="CLIPSHARDS_SERVE_TOKEN", help="Ask clients for this token."),
    ] = None,
    gated: Annotated[bool, typer.Option("--gated", help="Let other tokens list, but not fetch.")] = False,
) -> None:
    """Serve a folder by the protocol of the Hub, for tests and sites without a network.

    Example: clipshards serve demo/source
    """
    with _errors_for_people():
        from clipshards.hub.server import HubServer

        if not folder.is_dir():
            raise UsageError(f"FOLDER ({str(folder)!r}) must be a folder that exists")
        try:
            server = HubServer(folder, repo=repo, host=host, port=port, token=token, gated=gated)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port} ({error.strerror}): choose another --port") from None
        with server as hub:
            typer.echo(f"hf://datasets/{repo} at commit {hub.commit}")
            typer.echo(f"use it with: HF_ENDPOINT={hub.endpoint} clipshards prepare hf://datasets/{repo} OUT")
            sys.stdout.flush()
            signal.pause()


@recipe_app.command("check")
def check_recipe(
    file: Annotated[str, typer.Argument(help="TOML file, or name of a built-in recipe.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Also list this source: how many files each pattern finds.")
    ] = None,
) -> None:
    """Say what a recipe means, or each mistake in it: a line each, exit code 2.

    Example: clipshards recipe check own.toml --source hf://datasets/OWNER/NAME
    """
    with _errors_for_people():
        from flows.recipes import check

        check(file, source)


@recipe_app.command("new")
def new_recipe(
    source: Source,
    write: Annotated[
        Path | None, typer.Option("--write", help="File for the draft; default: it is printed.")
    ] = None,
) -> None:
    """Draft a recipe from the listing of a source and the first rows of its files; guesses are marked.

    Example: clipshards recipe new hf://datasets/OWNER/NAME --write own.toml
    """
    with _errors_for_people():
        from flows.recipes import draft, write_new

        text = draft(source)
        if write is None:
            typer.echo(text, nl=False)
        else:
            write_new(write, text)
            typer.echo(f"{write}: look at each guess, then `clipshards recipe check {write} --source {source}`")


def main() -> None:
    """Entry point of the console script."""
    app()


def _prepare(source: str, out: Path, as_json: bool, **options: Any) -> dict[str, Any]:
    from clipshards.decode.choice import choose_decoder
    from flows.settings import make_settings
    from manifests.lock import hold_output

    settings = make_settings(source, out, **options)
    with hold_output(settings.out):  # mistakes are answered before Prefect takes its seconds to start
        choose_decoder(settings.decoder)
    quiet_prefect()
    from flows.console import use
    from flows.prepare import prepare as flow
    from flows.reporting import reporter_for

    use(reporter_for(as_json))
    return flow(source, str(out), **options)


def _verify(out: Path, as_json: bool, *, decode: int = 0, repair: bool = False) -> None:
    from clipshards.errors import IncompleteError
    from flows.verifying import mend_options, verify_output

    checked, problems = verify_output(out, decode=decode)
    _print_verdict(checked, problems, as_json)
    if problems and repair:
        _prepare(out=out, as_json=as_json, **mend_options(out, problems))
        checked, problems = verify_output(out, decode=decode)
        _print_verdict(checked, problems, as_json)
    if problems:
        raise IncompleteError(f"{out} has {len(problems)} problems: run `clipshards verify {out} --repair`")


def _print_verdict(checked: dict[str, int], problems: list[Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"event": "verify", **checked, "problems": [str(problem) for problem in problems]}))
        return
    for problem in problems:
        typer.echo(problem, err=True)
    amounts = ", ".join(f"{count:,} {name}" for name, count in checked.items())
    typer.echo(f"verified {amounts}: {len(problems)} problems")


def _finish(totals: dict[str, Any], as_json: bool) -> None:
    from flows.reporting import print_totals

    print_totals(totals, as_json)


def _say(as_json: bool, text: str) -> None:
    if not as_json:
        typer.echo(text, err=True)


def _parse_quality(text: str) -> int | None:
    if text == "lossless":
        return None
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise UsageError(f"--quality ({text!r}) must be 1–100 or 'lossless'")
    return int(text)


def quiet_prefect() -> None:
    """A local run starts a server of its own; what that one logs means nothing to the user."""
    settings = {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_CLI_PROMPT": "false",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    try:
        home.mkdir(parents=True, exist_ok=True)  # without it Prefect's server tries to start for minutes
    except OSError as error:
        raise UsageError(
            f"Prefect's folder {home} cannot be made ({error.strerror}): set PREFECT_HOME to one that can"
        ) from None
    logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)  # it has no setting of its own


@contextmanager
def _errors_for_people(out: Path | None = None) -> Iterator[None]:
    """Our errors end the program with one sentence and their exit code; Ctrl-C and SIGTERM with 130.

    Args:
        out: of a command that goes on where it stopped: then what is kept is said, and what to run.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except ClipshardsError as error:
        kept = _what_is_kept(out) if error.exit_code in _GOES_ON else ""
        typer.echo(f"clipshards: {error}{kept}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo(f"clipshards: interrupted{_what_is_kept(out)}", err=True)
        sys.exit(130)


_GOES_ON = (IncompleteError.exit_code, NoSpaceError.exit_code)


def _what_is_kept(out: Path | None) -> str:
    if out is None or not (out / "work").is_dir():
        return ""
    from clipshards.disk import kept_work

    return f". Kept: {kept_work(out / 'work')}. To go on: {_typed_command()}"


def _typed_command() -> str:
    """The command as it was typed, for a shell; a token is never part of one that goes on."""
    program = sys.argv[0]
    is_found = shutil.which("clipshards") == program
    return shlex.join(["clipshards" if is_found else program, *sys.argv[1:]])


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
