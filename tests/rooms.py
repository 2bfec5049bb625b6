"""The rooms of the two packages, and which others each may import: tests/project/test_house.py holds them to it."""

LIBRARY = {"mha_lib.attention", "mha_lib.heads"}
MAY_IMPORT = {
    "mha_lib.attention": set(),
    "mha_lib.figures": set(),  # a file, not a folder
    "mha_lib.heads": {"mha_lib.attention"},
    "mha_course.models": LIBRARY,
    "mha_course.heads": {*LIBRARY, "mha_course.models"},
    "mha_course.pictures": {*LIBRARY, "mha_lib.figures", "mha_course.models", "mha_course.heads"},
    "mha_course.checking": {"mha_course.models"},
    "mha_course.museum": {"mha_lib.attention", "mha_course.models", "mha_course.checking"},
    "mha_course.exercises": {
        *LIBRARY, "mha_course.models", "mha_course.heads", "mha_course.checking", "mha_course.museum",
    },
    "mha_course.capstone": {
        *LIBRARY, "mha_course.models", "mha_course.heads", "mha_course.pictures", "mha_course.checking",
    },
}  # fmt: skip
