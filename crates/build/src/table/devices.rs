//! Tables of devices, modes and owners, in the format of genext2fs and makedevs.
//!
//! A line is `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, with `-` in fields that have no
//! meaning for the type. Types: `f` file, `d` directory (made if it is missing), `r` directory and
//! everything below it, `c` and `b` devices, `p` pipe. A COUNT above 0 makes a device for each
//! number N from START to COUNT - 1, as genext2fs 1.5 does: NAME followed by N, with the minor
//! number MINOR + N * INC - START.

use super::lines::{Wrong, lines};
use crate::entry::Kind;
use crate::error::{Cause, Error, Result};
use crate::tree::{NodeId, Over, Tree, parts};
use lanefs_ondisk::FileType;

#[derive(Debug, Clone)]
pub(super) struct Devices {
    lines: Vec<(usize, Line)>,
}

#[derive(Debug, Clone)]
struct Line {
    path: String,
    kind: char,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    major: u32,
    minor: u32,
    start: u32,
    step: u32,
    count: u32,
}

impl Devices {
    pub(super) fn parse(text: &str) -> std::result::Result<Devices, Wrong> {
        let parsed = lines(text).map(|(number, line)| match parse(line) {
            Ok(line) => Ok((number, line)),
            Err(detail) => Err((number, detail)),
        });
        Ok(Devices { lines: parsed.collect::<std::result::Result<_, _>>()? })
    }

    pub(super) fn apply(&self, tree: &mut Tree) -> std::result::Result<(), Wrong> {
        self.lines.iter().try_for_each(|(number, line)| {
            apply(tree, line).map_err(|error| (*number, format!("{}: {}", line.path, error.cause)))
        })
    }
}

fn parse(text: &str) -> std::result::Result<Line, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let field = |at: usize| fields.get(at).copied().filter(|field| *field != "-");
    let number = |at: usize, what: &str| match field(at) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("'{text}' is not a {what}")),
    };
    let path = field(0).ok_or("the name is missing")?.to_owned();
    let kind = field(1).and_then(|kind| kind.chars().next()).ok_or("the type is missing")?;
    if !"fdrcbp".contains(kind) {
        return Err(format!("type '{kind}' is none of f, d, r, c, b, p"));
    }
    let mode = field(2).map(|text| {
        let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.ok_or(format!("'{text}' is not a mode"))
    });
    Ok(Line {
        path,
        kind,
        mode: mode.transpose()?,
        uid: number(3, "user id")?,
        gid: number(4, "group id")?,
        major: number(5, "major number")?.unwrap_or(0),
        minor: number(6, "minor number")?.unwrap_or(0),
        start: number(7, "start")?.unwrap_or(0),
        step: number(8, "increment")?.unwrap_or(1),
        count: number(9, "count")?.unwrap_or(0),
    })
}

fn apply(tree: &mut Tree, line: &Line) -> Result<()> {
    let path = parts(line.path.as_bytes())?;
    let missing = || Error::new("", Cause::Missing { what: "the file".into() });
    match line.kind {
        'f' => {
            let node = tree.find(&path)?.ok_or_else(missing)?;
            set(tree, node, line);
        }
        'd' => {
            let node = tree.parent_for(&path)?;
            set(tree, node, line);
        }
        'r' => {
            let node = tree.find(&path)?.ok_or_else(missing)?;
            let mut todo = vec![node];
            while let Some(node) = todo.pop() {
                set(tree, node, line);
                todo.extend(tree.names(node).map(|(_, child)| child));
            }
        }
        kind => {
            let (name, dirs) = path.split_last().ok_or_else(missing)?;
            let dir = tree.parent_for(dirs)?;
            if line.count == 0 {
                return make(tree, dir, name, kind, line, line.minor);
            }
            for number in line.start..line.count {
                let minor = line.minor.saturating_add(number.saturating_mul(line.step));
                let name = [name, number.to_string().as_bytes()].concat();
                make(tree, dir, &name, kind, line, minor.saturating_sub(line.start))?;
            }
        }
    }
    Ok(())
}

fn make(
    tree: &mut Tree,
    dir: NodeId,
    name: &[u8],
    kind: char,
    line: &Line,
    minor: u32,
) -> Result<()> {
    let kind = match kind {
        'c' => Kind::Device(FileType::CharDevice, line.major, minor),
        'b' => Kind::Device(FileType::BlockDevice, line.major, minor),
        _ => Kind::Empty(FileType::Fifo),
    };
    let node = tree.make_file(dir, name, tree.new_meta(0o644), kind, Over::Files)?;
    set(tree, node, line);
    Ok(())
}

fn set(tree: &mut Tree, node: NodeId, line: &Line) {
    if let Some(node) = tree.node_mut(node) {
        node.meta.change(line.mode, line.uid, line.gid);
    }
}
