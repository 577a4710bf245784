//! file_contexts of SELinux: `REGEX [TYPE] CONTEXT`.
//!
//! The expression must match the whole path. As in libselinux, a matching line whose expression has
//! no special characters wins over all other matching lines. Among several matching lines of the
//! same kind, the last wins. `<<none>>` removes the label. The expressions are those of the crate
//! `regex`, so they have no look-around and no back references.
//!
//! Source: selabel_file(5).

use super::lines::{Wrong, lines, visit};
use crate::tree::Tree;
use lanefs_ondisk::FileType;
use regex::bytes::{Regex, RegexBuilder};

const NAME: &[u8] = b"security.selinux";

#[derive(Debug, Clone)]
pub(super) struct Contexts {
    mountpoint: String,
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
struct Line {
    /// The literal bytes with which every matching path begins.
    stem: Vec<u8>,
    /// The expression that a path must match; `None` if the path must be equal to `stem`.
    regex: Option<Regex>,
    kind: Option<FileType>,
    /// The value of the attribute; `None` if the line removes it.
    context: Option<Vec<u8>>,
}

impl Contexts {
    pub(super) fn parse(text: &str, mountpoint: &str) -> Result<Contexts, Wrong> {
        let parsed =
            lines(text).map(|(number, line)| parse(line).map_err(|detail| (number, detail)));
        let mut lines: Vec<Line> = parsed.collect::<Result<_, _>>()?;
        // Exact paths are sorted to the end, because the last match wins. The sort is stable, so
        // all other lines keep their order.
        lines.sort_by_key(|line| line.regex.is_none());
        Ok(Contexts { mountpoint: mountpoint.into(), lines })
    }

    pub(super) fn apply(&self, tree: &mut Tree) {
        visit(tree, &self.mountpoint, |tree, node, path| {
            let Some(node) = tree.node_mut(node) else { return };
            let kind = node.content.file_type();
            let found = self.lines.iter().rfind(|line| line.matches(path, kind));
            match found.map(|line| &line.context) {
                Some(Some(context)) => node.meta.set_attribute(NAME, context.clone()),
                Some(None) => node.meta.remove_attribute(NAME),
                None => {}
            }
        });
    }
}

impl Line {
    fn matches(&self, path: &[u8], kind: FileType) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
            && path.starts_with(&self.stem)
            && match &self.regex {
                None => path.len() == self.stem.len(),
                Some(regex) => regex.is_match(path),
            }
    }
}

fn parse(text: &str) -> Result<Line, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let (pattern, kind, context) = match fields.as_slice() {
        [pattern, context] => (pattern, None, context),
        [pattern, kind, context] => (pattern, Some(parse_kind(kind)?), context),
        _ => return Err("not REGEX [TYPE] CONTEXT".into()),
    };
    let context = match *context {
        "<<none>>" => None,
        // The value ends with a zero byte, as the kernel stores it.
        context => Some([context.as_bytes(), &[0]].concat()),
    };
    let (stem, is_exact) = stem(pattern);
    let regex = match is_exact {
        true => None,
        false => {
            let built = RegexBuilder::new(&format!("^(?:{pattern})$")).unicode(false).build();
            Some(built.map_err(|_| {
                format!("'{pattern}' is not a regular expression without look-around")
            })?)
        }
    };
    Ok(Line { stem, regex, kind, context })
}

fn parse_kind(text: &str) -> Result<FileType, String> {
    Ok(match text {
        "--" => FileType::Regular,
        "-d" => FileType::Directory,
        "-l" => FileType::Symlink,
        "-c" => FileType::CharDevice,
        "-b" => FileType::BlockDevice,
        "-p" => FileType::Fifo,
        "-s" => FileType::Socket,
        _ => return Err(format!("type '{text}' is none of --, -d, -l, -c, -b, -p, -s")),
    })
}

/// Returns the literal bytes with which every matching path begins, and whether these bytes are the
/// whole pattern.
fn stem(pattern: &str) -> (Vec<u8>, bool) {
    // A `|` separates alternatives. Any of them can match, and they need not have a common start.
    if pattern.contains('|') {
        return (Vec::new(), false);
    }
    let mut stem = Vec::new();
    let mut rest = pattern.bytes().peekable();
    while let Some(byte) = rest.next() {
        let literal = match byte {
            b'\\' => match rest.next() {
                Some(next) if !next.is_ascii_alphanumeric() => next,
                _ => return (stem, false),
            },
            b'.' | b'^' | b'$' | b'?' | b'*' | b'+' | b'(' | b')' | b'[' | b']' | b'{' | b'}' => {
                return (stem, false);
            }
            byte => byte,
        };
        // Each of these three can make the character before it optional, so that character does not
        // belong to the stem.
        if matches!(rest.peek(), Some(b'?' | b'*' | b'{')) {
            return (stem, false);
        }
        stem.push(literal);
    }
    (stem, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_ends_before_the_first_character_that_need_not_match() {
        let stem_of = |pattern| {
            let (stem, is_exact) = stem(pattern);
            (String::from_utf8(stem).unwrap(), is_exact)
        };
        assert_eq!(stem_of("/bin/sh"), ("/bin/sh".into(), true));
        assert_eq!(stem_of(r"/a\.b"), ("/a.b".into(), true));
        assert_eq!(stem_of("/bin(/.*)?"), ("/bin".into(), false));
        assert_eq!(stem_of("/binx?"), ("/bin".into(), false));
        assert_eq!(stem_of("/a|/b"), ("".into(), false));
        assert_eq!(stem_of(r"/a\d"), ("/a".into(), false));
    }
}
