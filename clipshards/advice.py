"""How each reason and warning of `schema` comes about, and what a person can do about it."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "empty-file": "An upload or a copy that failed. Tell whoever keeps the data set.",
    "not-media": "A web page, a text or scrambled bytes under a clip's name. Look at the first bytes: `detail` "
    "names the place.",
    "not-a-video": "A cover picture or subtitles stand where a row expects a clip. Mend the row or the file.",
    "no-video-stream": "Often the sound alone, of a download that took the audio of a video site. Fetch the clip "
    "again from where it came.",
    "moov-missing": "The recording or download was cut off before the index was written. The clip cannot be "
    "mended without a whole copy.",
    "truncated-media": "The file is cut, and all frames of this window lie behind the cut. Other windows of the "
    "clip are kept. A whole copy is needed.",
    "no-decodable-frames": "Only the header survived, or every packet is damaged. A whole copy is needed.",
    "no-leading-keyframe": "The clip was cut by stream copy in the middle of a group of pictures. Windows after "
    "the first key frame are kept; for the others encode the clip again from its original.",
    "decode-errors": "Damaged bytes in the clip, or a codec feature that FFmpeg gets wrong. Play it with "
    "`ffplay`; if it plays without a fault, please send a bug report.",
    "codec-unsupported": "The codec, or its conversion to RGB, is not in the FFmpeg of the `av` package. Encode "
    "the clip as H.264, or install an `av` that has it; then `--retry-quarantined`.",
    "size-change": "Recordings of calls and screens change their size. The trainer wants one size: encode the "
    "clip again with one.",
    "encrypted": "The clip is protected (DRM). It cannot be used without a free copy.",
    "time-limit": "A clip may take ten minutes; this one took longer, or its decoder crashed each time. It is "
    "tried again by the next run. On a busy machine use fewer `--workers`.",
    "frame-too-small": "The clip is narrower or lower than 32 px, one cell of the trainer's grid. Use a larger "
    "copy, or a profile with a smaller `grid_pixels` if your trainer takes it.",
    "sha-mismatch": "A cache or proxy on the way gives other bytes, or the disk does. Run it again, from another "
    "network if need be. Nothing made of these bytes is published.",
    "size-mismatch": "A proxy that sends a page of its own, or a file that was cut on the server. Run it again.",
    "lfs-pointer": "The folder was cloned without Git LFS, or the server holds only the pointer. `git lfs pull` "
    "in the folder, or use `hf://datasets/…` as the source.",
    "gated": "Accept the terms on the page of the data set, with the account whose token is in HF_TOKEN. A "
    "fine-grained token needs read access to gated repositories as well.",
    "file-missing": "The file went away between listing and download, or the local folder changed. Run it again.",
    "no-access": "HF_TOKEN is wrong, expired, or has no right to read this repository. Make a new one.",
    "source-missing": "A name or revision that is misspelt, or a private repository without a token.",
    "tar-damaged": "The tar was cut or changed after it was made. Nothing of such a part is used: members could "
    "be missing without a sign.",
    "tar-compressed": "Decompress the part (`zstd -d`, `xz -d`) and name it `.tar`: clips are read in place. gzip "
    "is unpacked by itself, but with `--disk-budget` only where the name ends in `.tar.gz` or `.tgz`.",
    "no-space": "A part that grows to 20 times its size is taken for a bomb; one over 1.5 times its size does not "
    "fit into what `--disk-budget` sets apart. Leave the budget out, or unpack the part and name it `.tar`.",
    "data-after-end-mark": "Two files glued together, or the end of an overwritten one. A second tar is read; "
    "this is none, and nothing of the part is used. Compare with `tar -tvf --ignore-zeros`.",
    "duplicate-member-conflict": "The tar was appended to. The last copy is used, as `tar -xf` does.",
    "duplicate-across-parts-conflict": "Two parts hold different clips under one path; nobody can say which one a "
    "row means. Leave one part out with `--parts`, or rename the clip at the source.",
    "unsafe-name": "A path that would be written outside of its folder, or that no disk can hold. Pack the tar "
    "again.",
    "link-member": "The link leads out of the tar, to nothing, or to what comes later. Pack the file itself (`tar "
    "--dereference --hard-dereference`).",
    "special-member": "A device, a pipe or a sparse file. Pack plain files (`tar` without `--sparse`).",
    "row-not-json": "NaN, a doubled key, a trailing comma, half a line. `line` says where; mend the line.",
    "row-not-a-list": "The line is of another kind than the file promises: a recipe that takes annotations for "
    "training lines, or the reverse. Check `questions` and `examples` of the recipe.",
    "empty-row": "A line without content. Nothing is lost; remove it at the source.",
    "no-video-spec": "A training line of texts alone. It is no video example.",
    "no-path": "The field that names the clip is missing or empty. Check `question_fields.clip` of the recipe.",
    "path-unsafe": "Make the path relative to the folder of the clips.",
    "clip-missing": "The part that holds it failed or is left out by `--parts`, or the row's path is spelt "
    "otherwise than in the tar. Compare with the `clips` table, whose status `unused` are clips without a row.",
    "bad-number": "A time, rate or size that is missing, NaN, a text, or negative. Mend the line.",
    "bad-window": "Start and end are swapped, equal, or closer than a frame. Mend the line.",
    "end-beyond-video": "The row was made for a longer copy of the clip, or counts in other units. The trainer "
    "would fail on it. Compare with `duration_seconds` in the `clips` table.",
    "too-many-videos": "The trainer cannot fit the videos of this line into `max_total` frames. Use fewer videos "
    "a line, or a profile with a larger `max_total`.",
    "answer-not-in-options": "The answer is no letter of an option and no option's text, or fits two. Mend the "
    "row.",
    "no-options": "The format says multiple choice. Add the options, or correct `format`.",
    "empty-answer": "The row asks and nobody answers: it cannot be learnt from. Mend the row.",
    "duplicate-id": "Two rows with one id; the first one is used. Give the other one its own.",
    "bad-meta": "`detail` names field and value. Where all rows are rejected by it, the recipe names the wrong "
    "field.",
}

WARNINGS: dict[str, str] = {
    "edit-list-trim": "Clips cut by stream copy. Nothing to do; decord would give other frames here.",
    "end-clamped": "Rounding in the row. Nothing to do.",
    "short-clip": "Nothing to do: the trainer repeats frames in the same way.",
    "static-clip": "A still picture as a video, or a frozen recording. Look at it before you trust questions of "
    "motion.",
    "frozen-frames": "A recording that stalls, or a low frame rate that was raised. Nothing to do.",
    "truncated-media": "The clip ends early; rows that ask for later frames are in the quarantine.",
    "no-leading-keyframe": "Cut by stream copy. Rows that ask for earlier frames are in the quarantine.",
    "rotated": "Filmed on a phone held upright. Nothing to do: decord and players turn it, too.",
    "fps-default": "Nothing to do: the trainer does not read the row's fps either.",
    "fps-capped": "Nothing to do; but check that whoever wrote the row did not want more frames.",
    "resolution-missing": "Nothing to do with these shards; the trainer's own loader would fail on the line.",
    "resolution-bad": "Nothing to do with these shards; the trainer's own loader would fail on the line.",
    "resolution-swapped": "Nothing to do with these shards; the trainer's own loader would fail on the line.",
    "resolution-stale": "The clip was encoded again, or the row belongs to another clip: look at some.",
    "duplicate-options": "The question has two right answers by its text. Leave it out where that matters.",
    "clip-in-train-and-test": "Scores on this clip say little. Leave it out of one split: filter by `clip`.",
    "part-removed-upstream": "Its clips are in no table now. The last snapshot has them until `clipshards gc`.",
    "row-count-differs": "Items of the bench and its annotation rows are not the same list: a file is incomplete.",
    "duplicate-member-conflict": "The tar was appended to. Check that the last copy is the one that is meant.",
    "data-after-end-mark": "Two archives glued together: `tar` and `tarfile` would have shown the first alone.",
    "tar-compressed": "Nothing to do. A name that ends in `.tar.gz` would let a disk budget set room apart for it.",
    "no-members": "An empty tar. Check the part at the source.",
    "number-as-text": "Nothing to do; the number is stored as a number.",
    "path-case": "A row and a tar that disagree in capitals. Correct the row before a second clip makes it "
    "ambiguous.",
}
