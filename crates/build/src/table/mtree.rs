//! mtree(5) specifications: a tree of files with their properties.
//!
//! A name without a slash is in the current directory. If the name is that of a directory, this
//! directory becomes the current one, until `..` leaves it. A name with a slash is a path from the
//! root. `/set` and `/unset` change the default properties of the lines after them. The properties
//! that Lanefs obeys are type, mode, uid, gid, time, link, device, optional and contents (a file of
//! the host). User names, sizes and digests are ignored. A regular file whose line has `contents`
//! is made, even if it exists already. Any other missing file is skipped if it is optional. If it
//! is not optional, a missing directory, link, device, pipe or socket is made, and a missing
//! regular file is an error.
//!
//! Source: mtree(5) of FreeBSD, mtree(8) of NetBSD.

use super::lines::Wrong;
use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::host_file::HostFile;
use crate::pipeline::Feeder;
use crate::tree::{Content, NodeId, Over, Tree, parts};
use crate::unescape::unescape;
use lanefs_ondisk::{FileType, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Properties that are accepted and have no effect.
const IGNORED: &str = "\
    cksum flags gname ignore inode md5 md5digest nlink nochange resdevice ripemd160digest \
    rmd160 rmd160digest sha1 sha1digest sha256 sha256digest sha384 sha384digest sha512 \
    sha512digest size tags uname all sha512_256 skein256";

#[derive(Debug, Clone)]
pub(super) struct Mtree {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    line: usize,
    path: Vec<u8>,
    kind: FileType,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    time: Option<Time>,
    target: Option<Vec<u8>>,
    device: (u32, u32),
    is_optional: bool,
    contents: Option<String>,
}

type Words = BTreeMap<String, String>;

impl Mtree {
    pub(super) fn parse(text: &str) -> std::result::Result<Mtree, Wrong> {
        let mut entries = Vec::new();
        let mut defaults = Words::new();
        let mut here: Vec<Vec<u8>> = Vec::new();
        for (line, text) in joined(text) {
            let wrong = |detail: String| (line, detail);
            let mut fields = text.split_whitespace();
            let Some(first) = fields.next() else { continue };
            match first {
                "/set" => defaults.extend(words(fields).map_err(wrong)?),
                "/unset" => fields.for_each(|word| drop(defaults.remove(word))),
                ".." => drop(here.pop()),
                name => {
                    let mut all = defaults.clone();
                    all.extend(words(fields).map_err(wrong)?);
                    let name = decoded(name).map_err(wrong)?;
                    let is_whole = name.contains(&b'/');
                    let path = match (is_whole, name.as_slice()) {
                        (true, _) => name.clone(),
                        (false, b".") => here.join(&b'/'),
                        (false, _) => {
                            let mut path = here.clone();
                            path.push(name.clone());
                            path.join(&b'/')
                        }
                    };
                    let entry = entry(line, path, &all).map_err(wrong)?;
                    if entry.kind == FileType::Directory && !is_whole {
                        here.push(name);
                    }
                    entries.push(entry);
                }
            }
        }
        Ok(Mtree { entries })
    }

    pub(super) fn apply(
        &self,
        tree: &mut Tree,
        feeder: &mut Feeder<'_, '_>,
    ) -> std::result::Result<(), Wrong> {
        self.entries.iter().try_for_each(|entry| {
            entry.apply(tree, feeder).map_err(|error| {
                let name = String::from_utf8_lossy(&entry.path);
                (entry.line, format!("{name}: {}", error.cause))
            })
        })
    }
}

/// Returns the lines with their numbers, without comments. If a line ends in a backslash, the next
/// line is joined to it.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let (line, continues) = match line.strip_suffix('\\') {
            _ if line.starts_with('#') => continue,
            Some(line) => (line, true),
            None => (line, false),
        };
        match joined.last_mut().filter(|_| is_open) {
            Some((_, open)) => {
                open.push(' ');
                open.push_str(line);
            }
            None => joined.push((number, line.into())),
        }
        is_open = continues;
    }
    joined
}

fn words<'a>(fields: impl Iterator<Item = &'a str>) -> std::result::Result<Words, String> {
    let known =
        ["type", "mode", "uid", "gid", "time", "link", "device", "optional", "contents", "content"];
    let split = fields.map(|field| {
        let (word, value) = field.split_once('=').unwrap_or((field, ""));
        match known.contains(&word) || IGNORED.split(' ').any(|ignored| ignored == word) {
            true => Ok((word.into(), value.into())),
            false => Err(format!("'{word}' is not a property of mtree that Lanefs knows")),
        }
    });
    split.collect()
}

/// Decodes a name in the encoding of vis(3): `\s`, `\t`, `\n`, `\#`, `\\`, and `\` before three
/// octal digits.
fn decoded(name: &str) -> std::result::Result<Vec<u8>, String> {
    let named = |letter: Option<u8>| match letter? {
        b's' => Some(b' '),
        b't' => Some(b'\t'),
        b'n' => Some(b'\n'),
        letter => Some(letter).filter(|letter| matches!(letter, b'\\' | b'#')),
    };
    let decoded = unescape(name.as_bytes(), named);
    decoded.ok_or_else(|| format!("'{name}' has a backslash without a meaning"))
}

fn entry(line: usize, path: Vec<u8>, words: &Words) -> std::result::Result<Entry, String> {
    let word = |name: &str| words.get(name).map(String::as_str);
    let id = |name: &str| match word(name) {
        Some(text) => text.parse().map(Some).map_err(|_| format!("{name}={text} is not a number")),
        None => Ok(None),
    };
    let kind = match word("type") {
        None | Some("file") => FileType::Regular,
        Some("dir") => FileType::Directory,
        Some("link") => FileType::Symlink,
        Some("char") => FileType::CharDevice,
        Some("block") => FileType::BlockDevice,
        Some("fifo") => FileType::Fifo,
        Some("socket") => FileType::Socket,
        Some(kind) => return Err(format!("type={kind} is not a type of mtree")),
    };
    let mode = word("mode").map(|text| {
        let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.ok_or_else(|| format!("mode={text} is not an octal mode"))
    });
    Ok(Entry {
        line,
        path,
        kind,
        mode: mode.transpose()?,
        uid: id("uid")?,
        gid: id("gid")?,
        time: word("time").map(parse_time).transpose()?,
        target: word("link").map(decoded).transpose()?,
        device: word("device").map(parse_device).transpose()?.unwrap_or_default(),
        is_optional: words.contains_key("optional"),
        contents: word("contents").or(word("content")).map(String::from),
    })
}

fn parse_time(text: &str) -> std::result::Result<Time, String> {
    let wrong = || format!("time={text} is not SECONDS.NANOSECONDS");
    let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let nanos = match nanos.len() {
        0..=9 => format!("{nanos:0<9}").parse(),
        _ => return Err(wrong()),
    };
    Ok(Time { secs: secs.parse().map_err(|_| wrong())?, nanos: nanos.map_err(|_| wrong())? })
}

/// Parses `FORMAT,MAJOR,MINOR`, or a single device number, which is hexadecimal after `0x` and
/// otherwise decimal.
fn parse_device(text: &str) -> std::result::Result<(u32, u32), String> {
    let wrong = || format!("device={text} is not FORMAT,MAJOR,MINOR");
    let number = |text: &str| text.parse().map_err(|_| wrong());
    match text.split(',').collect::<Vec<_>>().as_slice() {
        [all] => {
            let hexadecimal = all.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
            let all = hexadecimal.unwrap_or_else(|| all.parse()).map_err(|_| wrong())?;
            Ok((rustix::fs::major(all), rustix::fs::minor(all)))
        }
        [_, major, minor] => Ok((number(major)?, number(minor)?)),
        _ => Err(wrong()),
    }
}

impl Entry {
    fn apply(&self, tree: &mut Tree, feeder: &mut Feeder<'_, '_>) -> Result<()> {
        let path = parts(&self.path)?;
        let known = tree.find(&path)?;
        let found = known
            .filter(|&node| tree.node(node).is_some_and(|node| self.is_of_type(&node.content)));
        let node = match (found, &self.contents) {
            (Some(node), None) => node,
            (None, None) if self.is_optional && known.is_none() => return Ok(()),
            _ => self.make(tree, feeder, &path)?,
        };
        if let Some(node) = tree.node_mut(node) {
            let meta = &mut node.meta;
            meta.change(self.mode, self.uid, self.gid);
            if let Some(time) = self.time {
                (meta.mtime, meta.atime, meta.ctime) = (time, None, None);
            }
            if let (Some(wanted), Content::File(Kind::Symlink(target))) =
                (&self.target, &mut node.content)
            {
                *target = wanted.clone().into();
            }
        }
        Ok(())
    }

    /// Returns whether a file has the type of the entry, and a device its number.
    fn is_of_type(&self, content: &Content) -> bool {
        let device = match content {
            Content::File(Kind::Device(_, major, minor)) => (*major, *minor),
            _ => self.device,
        };
        (content.file_type(), device) == (self.kind, self.device)
    }

    /// Makes the file, which can be of any type. Replaces an existing file of this name.
    fn make(&self, tree: &mut Tree, feeder: &mut Feeder<'_, '_>, path: &[&[u8]]) -> Result<NodeId> {
        let missing = |what: &str| Error::new("", Cause::Missing { what: what.into() });
        let is_directory = self.kind == FileType::Directory;
        let meta = tree.new_meta(if is_directory { 0o755 } else { 0o644 });
        let (name, dirs) = path.split_last().ok_or_else(|| missing("the name"))?;
        let dir = tree.parent_for(dirs)?;
        let kind = match self.kind {
            FileType::Directory => return tree.make_directory(dir, name, meta),
            FileType::Regular => {
                let contents = self.contents.as_ref().ok_or_else(|| missing("the file"))?;
                return contents_of(tree, feeder, (dir, name, meta), contents);
            }
            FileType::Symlink => {
                let target = self.target.clone().ok_or_else(|| missing("link="))?;
                Kind::Symlink(target.into())
            }
            kind @ (FileType::CharDevice | FileType::BlockDevice) => {
                Kind::Device(kind, self.device.0, self.device.1)
            }
            kind => Kind::Empty(kind),
        };
        tree.make_file(dir, name, meta, kind, Over::Files)
    }
}

/// Makes a file whose contents are those of a file of the host.
fn contents_of(
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
    (dir, name, meta): (NodeId, &[u8], Meta),
    contents: &str,
) -> Result<NodeId> {
    let host = |error| Error::new("", error);
    let found = std::fs::metadata(contents).map_err(host)?;
    if !found.is_file() {
        return Err(Error::new("", Cause::Missing { what: format!("a file '{contents}'") }));
    }
    let node = tree.make_file(dir, name, meta, Kind::Regular(found.len()), Over::Files)?;
    let from = Arc::new(HostFile { path: contents.into() });
    feeder.host_data(node, &from, 0, found.len())?;
    Ok(node)
}
