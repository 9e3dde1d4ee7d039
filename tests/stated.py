"""Command lines of tests: what is stated last takes the place of what is stated before."""


def option_at(args, at: int) -> str:
    """Return the option at a place of a command line: of --option NAME=VALUE with the name."""
    word = args[at]
    if word == "--option" and at + 1 < len(args):
        return f"{word} {args[at + 1].partition('=')[0]}"
    return word


def once(args) -> list[str]:
    """Return a command line without an option and its value where the same option follows later."""
    kept: list[str] = []
    at = 0
    while at < len(args):
        word, following = args[at], args[at + 1 : at + 2]
        valued = bool(following) and not following[0].startswith("-")
        later = {option_at(args, other) for other in range(at + 1, len(args))}
        if word.startswith("-") and option_at(args, at) in later:
            at += 2 if valued else 1
            continue
        kept.append(word)
        at += 1
    return kept
