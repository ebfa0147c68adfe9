"""The chapters, in the order of the page: each says what is measured and tells what came out of it."""

from . import completion, grid, ranking, scaling, svm, variance

CHAPTERS = [one.CHAPTER for one in (grid, variance, scaling, completion, svm, ranking)]
