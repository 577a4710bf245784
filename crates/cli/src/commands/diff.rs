//! `lanefs diff`

use crate::cli::{
    Failure, FileArguments, ImagePath, Images, Intent, Operand, Report, Screen, Shown, keep_bytes,
    show_time, type_name,
};
use crate::copy::{Attribute, HostTree, Identity, ImageTree, Meta, Trail, Tree, TreeFile};
use crate::walk::{Entry, Order, Visit, Walk};
use lanefs::{FileType, Follow};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Compares the trees of two images, or of an image and a directory of the host
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Compares types, contents, link targets, device numbers, modes, owners, hard links and extended
attributes, including access control lists; with --times also times. An empty /lost+found of an
image is ignored. Each line of the output has a sign and a path:

  - PATH           is only in A
  + PATH           is only in B
  ! PATH: WHAT     differs: what, with the values of A and B

Exit codes: 0 the trees are equal, 1 they differ, 2 something could not be compared, or wrong
usage.

Examples:
  lanefs diff base.img vm.img
  lanefs diff --ignore owner,xattrs disk.img:/etc ./etc
  lanefs diff --times --json a.img b.img | jq -r .path")]
pub struct Arguments {
    /// The first tree: IMAGE[:/PATH], or a directory of the host
    #[arg(value_name = "A")]
    a: OsString,
    /// The second tree
    #[arg(value_name = "B")]
    b: OsString,
    /// Compare the times of the last modification too
    #[arg(long)]
    times: bool,
    /// Do not compare these properties
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    ignore: Vec<Aspect>,
    /// Print nothing; only set the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Print a JSON object for each difference, on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Equal,
    Different,
}

/// Runs `lanefs diff`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("diff");
    let found = report.given(compare(arguments, &report));
    match (found, report.has_failed()) {
        (Some(Found::Equal), false) => ExitCode::SUCCESS,
        (Some(Found::Different), false) => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

/// Converts an operand, which names a directory of the host, or a file or directory in an image.
fn operand(text: &OsString) -> Operand {
    match Operand::from(text.clone()) {
        Operand::Host(path) if !path.is_dir() => Operand::Image(ImagePath::from(text.clone())),
        operand => operand,
    }
}

fn compare(arguments: &Arguments, report: &Report) -> Result<Found, Failure> {
    let operands = [operand(&arguments.a), operand(&arguments.b)];
    let places = operands.iter().filter_map(Operand::place);
    let images = Images::open(&arguments.image, places.map(|place| place.wanted(Intent::Read)))?;
    let tree =
        |place: &ImagePath| images.get(&place.image).map(|fs| ImageTree::new(fs, &place.image));
    let [a, b] = &operands;
    match (a, b) {
        (Operand::Image(a), Operand::Image(b)) => {
            let (first, second) = (tree(a)?, tree(b)?);
            let tops = (first.find(&a.path, Follow::Links)?, second.find(&b.path, Follow::Links)?);
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Image(a), Operand::Host(b)) => {
            let (first, second) = (tree(a)?, HostTree::beside(&[]));
            let tops = (first.find(&a.path, Follow::Links)?, Trail::new(b));
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Host(a), Operand::Image(b)) => {
            let (first, second) = (HostTree::beside(&[]), tree(b)?);
            let tops = (Trail::new(a), second.find(&b.path, Follow::Links)?);
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Standard, _) | (_, Operand::Standard) => {
            Err(Failure::new("-", "standard input is not a tree"))
        }
        (Operand::Host(a), Operand::Host(_)) => {
            Err(Failure::new(a.display(), "neither A nor B is an image: use diff(1)"))
        }
    }
}

fn between<A: Tree, B: Tree>(
    arguments: &Arguments,
    report: &Report,
    a: &A,
    b: &B,
    tops: (A::Node, B::Node),
) -> Result<Found, Failure> {
    let mut output = Output { arguments, out: Screen::new(), found: Found::Equal };
    let mut pair = Pair::new(a, b, tops);
    let mut changes =
        Changes::new(a, b, Aspects { ignored: arguments.ignore.clone(), times: arguments.times });
    let done = (|| {
        while let Some(step) = pair.step() {
            let Some(side) = report.given(step) else { continue };
            let path = pair.path(&side).to_vec();
            match side {
                Side::First(_) => output.tell("-", &path, "", [("only_in", json!("a"))])?,
                Side::Second(_) => output.tell("+", &path, "", [("only_in", json!("b"))])?,
                Side::Both(first, second) => {
                    let found = report.given(changes.between(&first, &second));
                    if let Some(changes) = found.filter(|changes| !changes.is_empty()) {
                        output.changed(&path, changes)?;
                    }
                }
            }
            if arguments.quiet && output.found == Found::Different {
                break;
            }
        }
        output.out.flush()
    })();
    report.printed(done);
    Ok(output.found)
}

struct Output<'a, W: Write> {
    arguments: &'a Arguments,
    out: W,
    found: Found,
}

impl<W: Write> Output<'_, W> {
    /// Prints a difference: its sign, the path, and what differs as text or as JSON.
    fn tell<'f>(
        &mut self,
        sign: &str,
        path: &[u8],
        text: &str,
        facts: impl IntoIterator<Item = (&'f str, Value)>,
    ) -> io::Result<()> {
        self.found = Found::Different;
        if self.arguments.quiet {
            return Ok(());
        }
        if self.arguments.json {
            let mut line = described(path);
            facts.into_iter().for_each(|(name, value)| line[name] = value);
            return writeln!(self.out, "{line}");
        }
        write!(self.out, "{sign} /")?;
        self.out.write_all(path)?;
        writeln!(self.out, "{text}")
    }

    fn changed(&mut self, path: &[u8], changes: Vec<Change>) -> io::Result<()> {
        let texts: Vec<&str> = changes.iter().map(|change| change.text.as_str()).collect();
        let text = format!(": {}", texts.join(", "));
        self.tell("!", path, &text, changes.into_iter().map(|change| (change.what, change.values)))
    }
}

/// Returns the path as JSON.
fn described(path: &[u8]) -> Value {
    let path = [b"/", path].concat();
    let mut line = json!({ "path": String::from_utf8_lossy(&path) });
    keep_bytes(&mut line, "path", &path);
    line
}

/// A property by which files are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Aspect {
    Content,
    Mode,
    Owner,
    Xattrs,
    Links,
}

/// The chosen properties.
#[derive(Debug, Clone)]
pub struct Aspects {
    pub ignored: Vec<Aspect>,
    /// Whether the times of the last modification are compared.
    pub times: bool,
}

impl Aspects {
    /// Returns whether files are compared by `aspect`.
    pub fn contain(&self, aspect: Aspect) -> bool {
        !self.ignored.contains(&aspect)
    }
}

/// A difference: its name, its text for the user, and the values of both sides.
pub struct Change {
    pub what: &'static str,
    pub text: String,
    pub values: serde_json::Value,
}

/// The number of bytes compared at once.
const CHUNK: usize = 1 << 20;

/// Compares files of two trees.
pub struct Changes<'a, A: Tree, B: Tree> {
    a: &'a A,
    b: &'a B,
    aspects: Aspects,
    /// For each tree, maps a file with several names to the file of the other tree with which it
    /// was compared first.
    linked: [HashMap<Identity, Identity>; 2],
    buffers: [Vec<u8>; 2],
}

impl<'a, A: Tree, B: Tree> Changes<'a, A, B> {
    pub fn new(a: &'a A, b: &'a B, aspects: Aspects) -> Changes<'a, A, B> {
        let (linked, buffers) = ([HashMap::new(), HashMap::new()], [Vec::new(), Vec::new()]);
        Changes { a, b, aspects, linked, buffers }
    }

    /// Returns the differences between two files with the same path.
    pub fn between(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        let (first, second) = (&a.meta, &b.meta);
        if first.file_type != second.file_type {
            let names = [first, second].map(|meta| type_name(meta.file_type));
            changes.push(pair("type", names[0], names[1]));
            return Ok(changes);
        }
        let aspects = self.aspects.clone();
        if aspects.contain(Aspect::Content) {
            changes.extend(self.content(a, b)?);
        }
        let is_link = first.file_type == FileType::Symlink;
        if aspects.contain(Aspect::Mode) && !is_link && first.permissions != second.permissions {
            let shown = |meta: &Meta| format!("{:04o}", meta.permissions);
            changes.push(pair("mode", shown(first), shown(second)));
        }
        if aspects.contain(Aspect::Owner) && (first.uid, first.gid) != (second.uid, second.gid) {
            let shown = |meta: &Meta| format!("{}:{}", meta.uid, meta.gid);
            changes.push(pair("owner", shown(first), shown(second)));
        }
        if aspects.contain(Aspect::Xattrs) {
            let lists = (self.a.attributes(&a.node)?, self.b.attributes(&b.node)?);
            changes.extend(attributes(lists.0, lists.1));
        }
        if aspects.contain(Aspect::Links) && !self.is_linked_alike(first, second) {
            changes.push(pair("links", first.links, second.links));
        }
        if aspects.times && first.mtime != second.mtime {
            let shown = |meta: &Meta| show_time(meta.mtime, Shown::Nanoseconds);
            changes.push(pair("mtime", shown(first), shown(second)));
        }
        Ok(changes)
    }

    /// Returns whether two files have the same hard links, among the names compared so far.
    fn is_linked_alike(&mut self, a: &Meta, b: &Meta) -> bool {
        if a.file_type == FileType::Directory || a.links < 2 && b.links < 2 {
            return true;
        }
        let [to_b, to_a] = &mut self.linked;
        let second = *to_b.entry(a.identity).or_insert(b.identity);
        let first = *to_a.entry(b.identity).or_insert(a.identity);
        (first, second) == (a.identity, b.identity)
    }

    fn content(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Option<Change>, Failure> {
        let (first, second) = (&a.meta, &b.meta);
        Ok(match first.file_type {
            FileType::Regular if first.size != second.size => {
                Some(pair("size", first.size, second.size))
            }
            FileType::Regular => {
                // If the same two files were compared under an earlier name, they are not compared
                // again.
                let known = self.linked.first().and_then(|linked| linked.get(&first.identity));
                if first.size == 0 || known == Some(&second.identity) {
                    return Ok(None);
                }
                self.first_difference(a, b)?.map(|at| Change {
                    what: "content",
                    text: format!("content from byte {at}"),
                    values: json!({ "first_difference": at }),
                })
            }
            FileType::Symlink => {
                let texts = (self.a.read_link(&a.node)?, self.b.read_link(&b.node)?);
                let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                (texts.0 != texts.1).then(|| pair("target", shown(&texts.0), shown(&texts.1)))
            }
            FileType::CharDevice | FileType::BlockDevice => {
                let shown = |meta: &Meta| format!("{}, {}", meta.rdev.major, meta.rdev.minor);
                (first.rdev != second.rdev).then(|| pair("device", shown(first), shown(second)))
            }
            FileType::Directory | FileType::Fifo | FileType::Socket => None,
        })
    }

    /// Returns the offset of the first byte in which two files of the same size differ. Ranges that
    /// are holes in both files are not read.
    fn first_difference(
        &mut self,
        a: &Entry<A::Node>,
        b: &Entry<B::Node>,
    ) -> Result<Option<u64>, Failure> {
        let (mut first, mut second) = (self.a.open(&a.node)?, self.b.open(&b.node)?);
        let size = a.meta.size;
        let mut at = 0;
        while at < size {
            // Looking for holes costs more than reading a small file.
            if size > CHUNK as u64 {
                let next = [first.data_after(at)?, second.data_after(at)?];
                let starts = next.iter().map(|next| next.map_or(size, |(start, _)| start));
                at = starts.min().unwrap_or(size).max(at);
            }
            let len = size.saturating_sub(at).min(CHUNK as u64) as usize;
            if len == 0 {
                break;
            }
            let [one, other] = &mut self.buffers;
            one.resize(len, 0);
            other.resize(len, 0);
            first.fill(at, one)?;
            second.fill(at, other)?;
            if one != other {
                let equal = one.iter().zip(other.iter()).take_while(|(a, b)| a == b).count();
                return Ok(Some(at + equal as u64));
            }
            at += len as u64;
        }
        Ok(None)
    }
}

fn pair<T: Display + Into<Value>>(what: &'static str, a: T, b: T) -> Change {
    let text = format!("{what} {a} -> {b}");
    Change { what, text, values: json!([a.into(), b.into()]) }
}

/// Returns the names of the attributes that differ, each with a sign that means: only in A, only in
/// B, or changed.
fn attributes(mut a: Vec<Attribute>, mut b: Vec<Attribute>) -> Option<Change> {
    a.sort_unstable();
    b.sort_unstable();
    if a == b {
        return None;
    }
    let find = |list: &[Attribute], name: &[u8]| {
        list.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let mut names: Vec<&[u8]> = a.iter().chain(&b).map(|(name, _)| name.as_slice()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().filter_map(|name| {
        let sign = match (find(&a, name), find(&b, name)) {
            (first, second) if first == second => return None,
            (Some(_), None) => '-',
            (None, _) => '+',
            (Some(_), Some(_)) => '!',
        };
        Some(format!("{sign}{}", String::from_utf8_lossy(name)))
    });
    let shown: Vec<String> = shown.collect();
    let text = format!("xattrs {}", shown.join(" "));
    Some(Change { what: "xattrs", text, values: json!(shown) })
}

/// The entries of a path: in the first tree, in the second tree, or in both.
pub enum Side<A, B> {
    First(Entry<A>),
    Second(Entry<B>),
    Both(Entry<A>, Entry<B>),
}

/// The next path, with its entry in each tree that has this path; or the failure to read a file.
type Step<A, B> = Result<Side<<A as Tree>::Node, <B as Tree>::Node>, Failure>;

/// Two walks in the same order. A directory that only one tree has is not entered.
pub struct Pair<'s, A: Tree, B: Tree> {
    first: Half<'s, A>,
    second: Half<'s, B>,
}

/// A walk, and the entry that was read ahead.
struct Half<'s, S: Tree> {
    walk: Walk<'s, S>,
    ahead: Option<Entry<S::Node>>,
    /// Whether the entry that was read ahead has been compared.
    is_used: bool,
}

impl<'s, S: Tree> Half<'s, S> {
    fn new(source: &'s S, top: S::Node) -> Half<'s, S> {
        let walk = Walk::new(source, top, Order::Sorted);
        Half { walk, ahead: None, is_used: true }
    }

    /// Reads the next entry, if the previous one was compared.
    fn advance(&mut self) -> Result<(), Failure> {
        if !self.is_used {
            return Ok(());
        }
        self.ahead = None;
        while let Some(step) = self.walk.step() {
            let Visit::File(entry) = step? else { continue };
            if self.walk.is_spare_lost_and_found(&entry)? {
                self.walk.prune();
                continue;
            }
            self.ahead = Some(entry);
            self.is_used = false;
            return Ok(());
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Entry<S::Node>> {
        self.is_used = true;
        self.ahead.take()
    }
}

impl<'s, A: Tree, B: Tree> Pair<'s, A, B> {
    /// Begins both walks, each at one of the two `tops`.
    pub fn new(a: &'s A, b: &'s B, tops: (A::Node, B::Node)) -> Pair<'s, A, B> {
        Pair { first: Half::new(a, tops.0), second: Half::new(b, tops.1) }
    }

    /// Returns the path of a step, relative to the top directories of the two trees.
    pub fn path(&self, side: &Side<A::Node, B::Node>) -> &[u8] {
        match side {
            Side::First(_) | Side::Both(..) => self.first.walk.path(),
            Side::Second(_) => self.second.walk.path(),
        }
    }

    /// Returns the next path that either tree has; `None` at the end.
    pub fn step(&mut self) -> Option<Step<A, B>> {
        if let Err(failure) = self.first.advance().and_then(|()| self.second.advance()) {
            return Some(Err(failure));
        }
        let order = match (&self.first.ahead, &self.second.ahead) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), Some(_)) => in_order(self.first.walk.path(), self.second.walk.path()),
        };
        Some(Ok(match order {
            Ordering::Less => {
                self.first.walk.prune();
                Side::First(self.first.take()?)
            }
            Ordering::Greater => {
                self.second.walk.prune();
                Side::Second(self.second.take()?)
            }
            Ordering::Equal => {
                let (first, second) = (self.first.take()?, self.second.take()?);
                let is_dir = |file_type| file_type == FileType::Directory;
                if is_dir(first.meta.file_type) != is_dir(second.meta.file_type) {
                    self.first.walk.prune();
                    self.second.walk.prune();
                }
                Side::Both(first, second)
            }
        }))
    }
}

/// Compares paths name by name, which is the order of a walk.
fn in_order(a: &[u8], b: &[u8]) -> Ordering {
    let names = |path: &[u8]| !path.is_empty();
    match (names(a), names(b)) {
        (true, true) => a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/')),
        (a, b) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_names_that_continue_its_name() {
        let mut paths: Vec<&[u8]> = vec![b"a.b", b"a/x", b"", b"a", b"a/x/y", b"b"];
        paths.sort_by(|a, b| in_order(a, b));
        assert_eq!(paths, [&b""[..], b"a", b"a/x", b"a/x/y", b"a.b", b"b"]);
    }
}
