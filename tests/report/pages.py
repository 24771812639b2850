"""An HTML page as its tests see it."""

import html.parser

VOID = {"meta", "img", "br", "link"}


class Page(html.parser.HTMLParser):
    """Collects what a page refers to, its ids, and whether its tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.crossed, self.ids, self.links, self.tags = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [
            attributes[key] for key in ("src", "href", "xlink:href") if key in attributes
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)
