"""What people are told to type: command lines of `poolwright` in pages and in messages, and what the program itself
says that it takes."""

import re
import subprocess

LINE = re.compile(r"(?:^|[\s(/$])poolwright ([^|;&#>)\"'\n]*)", re.MULTILINE)
IN_CODE = re.compile(r"poolwright ([a-z][^`\n;\"|]*)")
FENCED = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")


class Commands:
    """All commands of a program, with the options of each, as their `--help` has them."""

    def __init__(self, program):
        self.subcommands, self.options = {}, {}
        self._walk(program, ())

    def _walk(self, program, path):
        text = subprocess.run([program, *path, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.options[path] = set(OPTION.findall(text))
        # The next section may stand right below the last command.
        section = re.search(r"^[^\n]*ommands:\n((?:  .*\n|\n)*)", text, re.MULTILINE)
        names = re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", section[1], re.MULTILINE) if section else []
        self.subcommands[path] = [name for name in names if name != "help"]
        for name in self.subcommands[path]:
            self._walk(program, (*path, name))

    def wrong(self, line, must_be_one):
        """What is wrong with a command line, or nothing. Words that are no command may be prose."""
        words, path = line.split(), ()
        while words and words[0] in self.subcommands[path]:
            path = (*path, words.pop(0))
        if must_be_one and self.subcommands[path] and words and re.fullmatch("[a-z]+", words[0]):
            return f"no such command: {' '.join((*path, words[0]))}"
        unknown = [option for option in OPTION.findall(" ".join(words)) if path and option not in self.options[path]]
        return f"{' '.join(path)} has no option {', '.join(unknown)}" if unknown else None


def in_page(page, commands):
    """The command lines of a page of Markdown, each with whether it must be one."""
    page = of_agent(page)
    for block in FENCED.findall(page):
        yield from ((line, False) for line in LINE.findall(block.replace("\\\n", " ")))
    for span in SPAN.findall(FENCED.sub("", page)):
        words = span.split()
        if words[:1] == ["poolwright"]:
            yield re.split(r"[|;&#>]", " ".join(words[1:]))[0], True
        elif words and words[0] in commands.subcommands[()]:
            yield " ".join(words), False


def of_agent(text):
    """The commands of poolwright-agent are those of `poolwright agent`."""
    return text.replace("poolwright-agent ", "poolwright agent ")


def in_source(text):
    """The command lines in the texts of a source file: hints and examples."""
    joined = of_agent(re.sub(r"\\\n\s*", "", text).replace("\\n", "\n"))
    return ((line, False) for line in IN_CODE.findall(joined))
