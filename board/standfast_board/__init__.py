"""A board of submissions: results of studies, each in one file, compared where they are comparable, as a static site.

`submission` writes and reads the files, `comparison` puts those together that share data, network and options,
`verification` evaluates a random sample of their jobs again, and `site` writes the pages.
"""

from standfast_board.site import BoardSite, build_site
from standfast_board.submission import Submission, SubmissionError, make_submission, read_submission
from standfast_board.verification import Verification, verify_submission

__all__ = [
    "BoardSite",
    "Submission",
    "SubmissionError",
    "Verification",
    "build_site",
    "make_submission",
    "read_submission",
    "verify_submission",
]
