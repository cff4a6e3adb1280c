"""The words and the tables of the output. `SCHEMA_VERSION` goes up with each change of a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 2

REASONS: dict[str, str] = {
    "empty-file": "The clip has no bytes.",
    "not-media": "No demuxer recognises the bytes as audio or video.",
    "not-a-video": "The file is media of another kind (a still image, subtitles).",
    "no-video-stream": "The file has no video stream.",
    "moov-missing": "An MP4 without its index (moov box): the download or the recording was cut.",
    "truncated-media": "The media ends before the frames its index promises.",
    "no-decodable-frames": "The header is readable, but no frame can be decoded.",
    "no-leading-keyframe": "Frames before the first key frame cannot be decoded.",
    "decode-errors": "The decoder reported damage at or before a wanted frame.",
    "codec-unsupported": "No decoder for this codec in the installed FFmpeg.",
    "size-change": "The frame size changes in the middle of the clip.",
    "encrypted": "The clip is encrypted.",
    "time-limit": "Decoding took longer than the limit for one clip, or the decoder hung or died.",
    "frame-too-small": "The frame is smaller than one cell of the grid; the trainer fails on it.",
    "sha-mismatch": "The bytes are not those the listing names, twice in a row.",
    "size-mismatch": "The size is not that of the listing.",
    "lfs-pointer": "A Git LFS pointer text in place of the file.",
    "gated": "The repository is gated and the token has no access.",
    "file-missing": "The file is not in the repository.",
    "no-access": "The Hub does not let this token in.",
    "source-missing": "The Hub knows no such data set or revision.",
    "tar-damaged": "A tar header is damaged, or the archive ends too early.",
    "tar-compressed": "A compressed archive that is not unpacked: no gzip, or no place for it in the disk budget.",
    "no-space": "A compressed part grows over what it may take of the disk.",
    "data-after-end-mark": "Bytes that are no tar members follow the end mark.",
    "duplicate-member-conflict": "The same path twice in one tar with different bytes.",
    "duplicate-across-parts-conflict": "The same path in two parts with different bytes.",
    "unsafe-name": "A member name that is absolute, climbs with '..' or is not text.",
    "link-member": "A symbolic link to no file of its part, or a hard link whose target does not precede it.",
    "special-member": "A device, a pipe, a sparse file or an unknown member type.",
    "row-not-json": "The line is not JSON by the standard.",
    "row-not-a-list": "A training line is not a list of specs, or an annotation or a conversation is no object.",
    "empty-row": "The line is an empty list or object.",
    "no-video-spec": "The training line names no video.",
    "no-path": "A video without a path.",
    "path-unsafe": "A video path that is absolute or climbs with '..'.",
    "clip-missing": "No part holds the clip that the row names.",
    "bad-number": "A number is missing, not finite or out of range.",
    "bad-window": "start_seconds must be ≥ 0 and < end_seconds, and the window must hold a frame.",
    "end-beyond-video": "The window reaches more than 0.5 s past the end of the clip.",
    "too-many-videos": "Not even the smallest frame counts of all videos fit max_total.",
    "answer-not-in-options": "The answer does not point at exactly one option.",
    "no-options": "A multiple-choice row without options.",
    "empty-answer": "The row has no answer, or the example no target.",
    "duplicate-id": "A second row with the same id.",
    "bad-meta": "A field has the wrong type or shape.",
}

WARNINGS: dict[str, str] = {
    "edit-list-trim": "The container hides frames (edit list); what a player shows is stored.",
    "end-clamped": "The window ends at most 0.5 s after the clip and was cut to it.",
    "short-clip": "The window holds fewer frames than are sampled: frames repeat.",
    "static-clip": "All sampled frames are equal.",
    "frozen-frames": "Some neighbouring sampled frames are equal.",
    "truncated-media": "The media ends before the frames its container promises; those that are there are used.",
    "no-leading-keyframe": "The clip starts before its first key frame; frames from there on are used.",
    "rotated": "The clip was turned as its rotation tag says.",
    "fps-default": "The row names no fps; frames are taken by the profile's rate.",
    "fps-capped": "The row's fps is above the profile's rate, which is used.",
    "resolution-missing": "The row has no src_resolution; the decoded size is used.",
    "resolution-bad": "src_resolution is no [height, width]; the decoded size is used.",
    "resolution-swapped": "src_resolution is [width, height]; the decoded size is used.",
    "resolution-stale": "src_resolution is not the decoded size; the decoded size is used.",
    "duplicate-options": "Two options have the same text; an answer by letter is taken as it is.",
    "clip-in-train-and-test": "The same clip bytes are in the training and in the test split.",
    "part-removed-upstream": "A part of the last snapshot is no longer in the repository.",
    "row-count-differs": "Two files that should have one line per row differ in number.",
    "duplicate-member-conflict": "The same path twice in one tar; the last copy is used, as tar does.",
    "data-after-end-mark": "Members after the end mark of the tar were read as well.",
    "tar-compressed": "The part is gzip under a tar's name; offsets are those in the unpacked tar.",
    "no-members": "The tar holds no files.",
    "number-as-text": "A number was written as a text and read as a number.",
    "path-case": "The clip was found under another case of letters.",
}


@dataclass(frozen=True, slots=True)
class Reject:
    """One thing that cannot be used: a row of the quarantine."""

    kind: str
    """part, member, clip, view, row, example or item."""
    path: str
    """The part or the annotation file."""
    reason: str
    """A word of `REASONS`."""
    detail: str = ""
    member: str = ""
    """The member of the part: a clip, an item."""
    line: int = 0
    """1-based line of the annotation file, 0 for things that are not lines."""
    offset_bytes: int = -1
    """Where the member's bytes start in the part, −1 when unknown."""
    clip: str = ""
    """The clip concerned, when there is one."""
    view: str = ""
    """The key of the view concerned, when it is one view alone."""
    num_rows: int = 0
    """Annotation rows and bench items that are lost with it; `num_examples`: training lines."""
    num_examples: int = 0


def _columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in types.items()])


_STRING = pa.string()
_STRINGS = pa.list_(_STRING)

EVENTS = pa.list_(pa.struct({"source": _STRING, "persons": pa.list_(pa.int64()), "extra": _STRING}))
TURNS = pa.list_(pa.struct({"output": pa.bool_(), "content": _STRING}))

QUESTION_COLUMNS = _columns(
    file=_STRING,
    line=pa.int32(),
    id=_STRING,
    clip=_STRING,
    source=_STRING,
    category=_STRING,
    category_canonical=_STRING,
    difficulty=_STRING,
    format=_STRING,
    question=_STRING,
    options=_STRINGS,
    answer=_STRING,
    answer_index=pa.int32(),
    response=_STRING,
    extra=_STRING,
    warnings=_STRINGS,
)
"""What an annotation row or a bench item says; `manifests` adds where its view is."""

EXAMPLE_COLUMNS = _columns(
    file=_STRING,
    line=pa.int32(),
    id=_STRING,
    stage=_STRING,
    clip=_STRING,
    start_seconds=pa.float64(),
    end_seconds=pa.float64(),
    fps_from_row=pa.float64(),
    height_from_row=pa.int32(),
    width_from_row=pa.int32(),
    difficulty=_STRING,
    question=_STRING,
    target=_STRING,
    turns=TURNS,
    gt_events=EVENTS,
    extra=_STRING,
    warnings=_STRINGS,
)
"""What a training line says; clip and window are those of its first video. No start and end: the whole clip."""


_PLACE: dict[str, pa.DataType] = {
    "view": _STRING,
    "shard": _STRING,
    "offset_bytes": pa.int64(),
    "length_bytes": pa.int64(),
    "num_frames": pa.int32(),
    "video_tokens": pa.int32(),
}
"""Where the frames of a row are: one `pread` of length_bytes at offset_bytes of the shard."""

TABLES: dict[str, pa.Schema] = {
    "parts": _columns(
        part=_STRING,
        split=_STRING,
        size_bytes=pa.int64(),
        sha256=_STRING,
        num_members=pa.int32(),
        num_sidecars=pa.int32(),
        num_clips=pa.int32(),
        num_shards=pa.int32(),
        warnings=_STRINGS,
    ),
    "clips": _columns(
        clip=_STRING,
        split=_STRING,
        source=_STRING,
        status=_STRING,
        reason=_STRING,
        part=_STRING,
        member=_STRING,
        offset_bytes=pa.int64(),
        size_bytes=pa.int64(),
        sha256=_STRING,
        container=_STRING,
        codec=_STRING,
        pix_fmt=_STRING,
        fps=pa.float64(),
        num_frames=pa.int32(),
        duration_seconds=pa.float64(),
        height=pa.int32(),
        width=pa.int32(),
        rotation=pa.int16(),
        decord_divergent=pa.bool_(),
        is_truncated=pa.bool_(),
        decoder=_STRING,
        num_views=pa.int32(),
        warnings=_STRINGS,
    ),
    "views": _columns(
        view=_STRING,
        clip=_STRING,
        split=_STRING,
        start_seconds=pa.float64(),
        end_seconds=pa.float64(),
        num_frames=pa.int32(),
        frame_indices=pa.list_(pa.int32()),
        height=pa.int32(),
        width=pa.int32(),
        video_tokens=pa.int32(),
        shard=_STRING,
        offset_bytes=pa.int64(),
        length_bytes=pa.int64(),
        part=_STRING,
        member_offset_bytes=pa.int64(),
        member_size_bytes=pa.int64(),
        member_sha256=_STRING,
        warnings=_STRINGS,
    ),
    "examples": _columns(
        split=_STRING,
        **{field.name: field.type for field in EXAMPLE_COLUMNS},
        question_id=_STRING,
        source=_STRING,
        category=_STRING,
        format=_STRING,
        **_PLACE,
        more_views=_STRINGS,
    ),
    "questions": _columns(
        split=_STRING,
        **{field.name: field.type for field in QUESTION_COLUMNS},
        num_examples=pa.int32(),
        **_PLACE,
    ),
    "bench": _columns(
        split=_STRING,
        **{field.name: field.type for field in QUESTION_COLUMNS},
        question_id=_STRING,
        **_PLACE,
    ),
    "shards": _columns(
        shard=_STRING,
        split=_STRING,
        part=_STRING,
        size_bytes=pa.int64(),
        sha256=_STRING,
        num_samples=pa.int32(),
        num_frames=pa.int32(),
    ),
    "quarantine": _columns(
        kind=_STRING,
        reason=_STRING,
        detail=_STRING,
        path=_STRING,
        line=pa.int32(),
        member=_STRING,
        offset_bytes=pa.int64(),
        clip=_STRING,
        view=_STRING,
        num_rows=pa.int32(),
        num_examples=pa.int32(),
    ),
}
"""The Parquet tables of a snapshot, by name. Rows are sorted by clip; seconds are float64."""

ROWS: dict[str, str] = {
    "parts": "A tar of the source that was verified and indexed.",
    "clips": "A clip: each one that rows name, and each other file of the parts (`unused`).",
    "views": "A window of a clip with exact frames: one sample of a shard.",
    "examples": "A training line (of `data_sft.jsonl` or `data_rl.jsonl`) whose frames are stored.",
    "questions": "An annotation row whose clip is stored.",
    "bench": "An item of GRASP-Bench: a JSON file of the test parts.",
    "shards": "A tar of samples.",
    "quarantine": "A thing that could not be used, and why.",
}
"""What a row of each table is."""

COLUMNS: dict[str, str] = {
    "answer": "The answer as it is stored: a letter, a text.",
    "answer_index": "Number of the option that the answer points at, from 0; null for open questions.",
    "category": "The category as the row spells it.",
    "category_canonical": "The same in the recipe's one spelling: C1 is J1.",
    "clip": "Path of the clip as rows name it, or of the file that is a clip of no row.",
    "codec": "Codec by FFmpeg's name; null, as all that follows, where the clip was not opened.",
    "container": "Container by FFmpeg's names.",
    "decoder": "The decoder that gave the frames: cpu, cuda or ffmpeg.",
    "decord_divergent": "decord counts or returns other frames than a player shows; the player's are stored.",
    "detail": "What was seen, for a person: which value broke which rule.",
    "difficulty": "easy, medium or hard; an example without one is medium.",
    "duration_seconds": "Of the video stream.",
    "end_seconds": "End of the window in the clip, not included; null: the whole clip.",
    "extra": "JSON of the fields that have no column of their own; null without any.",
    "file": "The file of the source that the row stands in.",
    "format": "mcq, open_ended, …, as the row says.",
    "fps": "Average frame rate, as decord takes it.",
    "fps_from_row": "What the line claims; frames are taken by the profile's rate.",
    "frame_indices": "Of the stored frames, in the clip; repeats are legal.",
    "gt_events": "Gaze and gesture events of an RL line: source, persons, JSON of what else it holds.",
    "height": "Pixels.",
    "height_from_row": "What the line claims (src_resolution).",
    "id": "Of the row; made of file and line where the row has none.",
    "is_truncated": "The media ends before the frames that its container promises.",
    "kind": "part, member, clip, view, row, example or item.",
    "length_bytes": "Bytes of the sample in the shard, headers included: one `pread` gives it.",
    "line": "1-based line of the file; 0 for what is no line.",
    "member": "Path of the clip inside the part.",
    "member_offset_bytes": "Where the clip's bytes start in the part.",
    "member_sha256": "Of the clip's bytes.",
    "member_size_bytes": "Of the clip.",
    "more_views": "Keys of the views of the second and further videos of the line.",
    "num_clips": "Clips that rows name and this part holds.",
    "num_examples": "Training lines that ask this question.",
    "num_frames": "Frames that are stored.",
    "num_members": "Files in the tar.",
    "num_rows": "Annotation rows and bench items that are lost with it.",
    "num_samples": "Views in the shard.",
    "num_shards": "Shards made of this part.",
    "num_sidecars": "Files of macOS (`._x`), which are no clips and are left out.",
    "num_views": "Windows of the clip that are stored.",
    "offset_bytes": "Where the sample starts in the shard.",
    "options": "Choices with their labels; null for open questions.",
    "part": "Path of the tar in the source.",
    "path": "The part or the annotation file.",
    "pix_fmt": "Pixel format by FFmpeg's name.",
    "question": "Its text.",
    "question_id": "Id of the annotation row that asks the same; null where none does.",
    "reason": "Why it cannot be used: a word of [reasons](reasons.md).",
    "response": "The worked answer of the annotation row, where it has one.",
    "rotation": "Degrees that the clip was turned to the left, as its tag says: 0, 90, 180 or 270.",
    "sha256": "Of the file's bytes.",
    "shard": "Path of the shard in the snapshot.",
    "size_bytes": "Of the file.",
    "source": "The collection that the clip comes from: avsbench, tvqa, …",
    "split": "train or test.",
    "stage": "sft or rl.",
    "start_seconds": "Start of the window in the clip; null: the whole clip.",
    "status": "sharded, rejected or unused (no row names it).",
    "target": "The text to learn; of an RL line the answer that is rewarded.",
    "turns": "Texts in order, each with whether the assistant says it.",
    "video_tokens": "What the frames cost a GRASP trainer: cells · frames // 2, over all videos of an example.",
    "view": "Key of the sample, `<source>-<clip>-<12 hex>`; null where no view is concerned.",
    "warnings": "Words of [warnings](reasons.md#warnings).",
    "width": "Pixels.",
    "width_from_row": "What the line claims (src_resolution).",
    # where a word means another thing in one table
    "clips.height": "Pixels, as the clip is shown: after its rotation.",
    "clips.num_frames": "Frames in the clip, counted as decord does: packets of the stream.",
    "clips.offset_bytes": "Where the clip's bytes start in the part.",
    "clips.sha256": "Of the clip's bytes.",
    "clips.size_bytes": "Of the clip.",
    "clips.width": "Pixels, as the clip is shown: after its rotation.",
    "examples.category": "In the recipe's spelling, of the annotation row; null where none asks the same.",
    "examples.clip": "Path of the first video's clip.",
    "examples.num_frames": "Frames of all its videos.",
    "examples.view": "Key of the sample of the first video.",
    "quarantine.clip": "The clip concerned, where there is one.",
    "quarantine.num_examples": "Training lines that are lost with it.",
    "quarantine.offset_bytes": "Where the member's bytes start in the part; null where that is unknown.",
    "quarantine.view": "The view concerned, when it is one alone.",
    "views.height": "Pixels of the stored frames, on the 32 px grid.",
    "views.width": "Pixels of the stored frames, on the 32 px grid.",
}
"""What each column says, by its name; by `table.column` where a table means something of its own."""
