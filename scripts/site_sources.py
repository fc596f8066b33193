"""What mkdocs calls to build the site: files outside of `docs` that pages link to are pages, too.

Pages link to them as GitHub wants it, relative to their own file. On the site they are below
`source/`, and so are the files that these link to in turn.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")


def linked_files(file):
    """Return the links of a page in Markdown to files of the repository, with the files."""
    for link in set(LINK.findall(file.read_text())):
        target = (file.parent / link).resolve()
        if target.is_file() and target.is_relative_to(ROOT):
            yield link, target


def path_on_site(file):
    """Return where a file of the repository is on the site, relative to `docs`."""
    if file.is_relative_to(DOCS):
        return str(file.relative_to(DOCS))
    path = f"source/{file.relative_to(ROOT)}"
    return path if file.suffix == ".md" else f"{path}.md"


def page_of(file):
    """Return the page of a file: code as it is, Markdown with links as the site wants them."""
    text = file.read_text()
    if file.suffix != ".md":
        language = file.suffix.removeprefix(".")
        return f"# {file.name}\n\n`{file.relative_to(ROOT)}`\n\n`````{language}\n{text}\n`````\n"
    folder = os.path.dirname(path_on_site(file))
    for link, target in linked_files(file):
        text = text.replace(f"]({link}", f"]({os.path.relpath(path_on_site(target), folder)}")
    return text


def on_files(files, config):
    """Add the files that pages link to, and those that these link to."""
    pages = [Path(file.abs_src_path) for file in files.documentation_pages()]
    known = set(pages)
    while pages:
        for _, target in linked_files(pages.pop()):
            if target in known or target.is_relative_to(DOCS):
                continue
            known.add(target)
            if target.suffix == ".md":
                pages.append(target)
            files.append(File.generated(config, path_on_site(target), content=page_of(target)))


def on_page_markdown(markdown, page, config, files):
    """Let links of a page to files outside of `docs` lead to their pages."""
    return page_of(Path(page.file.abs_src_path)) if page.file.abs_src_path else markdown
