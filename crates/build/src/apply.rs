//! Applies the entries of an archive to the tree, and passes their data to the feeder.

use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::pipeline::Feeder;
use crate::tar::{Body, Dialect, Reader};
use crate::tree::{self, Over, Tree, parts};
use std::io::Read;

/// What an entry with a name `.wh.NAME` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whiteouts {
    /// The entry is an ordinary file of this name, as in tar(1).
    #[default]
    Files,
    /// NAME is removed from the tree of the earlier sources, as in the layers of a container image.
    Removals,
}

/// The part of a tar that is applied.
#[derive(Debug, Clone, Default)]
pub struct Subtree {
    /// The directory of the tar that becomes the root. Entries elsewhere are left out.
    pub root: Option<String>,
    /// How many leading parts the names below this directory lose. Entries whose names have no
    /// more parts are left out, as by `tar --strip-components`.
    pub strip: usize,
}

impl Subtree {
    pub(crate) fn is_whole(&self) -> bool {
        self.root.is_none() && self.strip == 0
    }

    /// Returns the parts that an entry's name keeps; `None` if the entry is left out.
    fn of<'p>(&self, parts: Vec<&'p [u8]>) -> Result<Option<Vec<&'p [u8]>>> {
        let root = tree::parts(self.root.as_deref().unwrap_or_default().as_bytes())?;
        if !parts.starts_with(&root) {
            return Ok(None);
        }
        let left_out = root.len().saturating_add(self.strip);
        let is_left = left_out < parts.len() || self.strip == 0;
        Ok(is_left.then(|| parts.into_iter().skip(left_out).collect()))
    }
}

/// Applies all entries of the archive `input` that lie in `subtree`.
pub(crate) fn archive(
    input: impl Read,
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
    whiteouts: Whiteouts,
    subtree: &Subtree,
) -> Result<()> {
    let mut applied = 0u64;
    let dialect = match whiteouts {
        Whiteouts::Files => Dialect::Gnu,
        Whiteouts::Removals => Dialect::Go,
    };
    let mut reader = Reader::new(input, dialect);
    while let Some(item) = reader.next()? {
        let name = String::from_utf8_lossy(&item.path).into_owned();
        let named = |error: Error| match error.place.is_empty() {
            true => Error { place: name.clone(), ..error },
            false => error,
        };
        let Some(path) = subtree.of(parts(&item.path).map_err(named)?).map_err(named)? else {
            continue;
        };
        let names = Names { path, subtree };
        entry(&mut reader, (item.meta, item.body), names, tree, feeder, whiteouts)
            .map_err(named)?;
        applied += 1;
    }
    if applied == 0 && !subtree.is_whole() {
        let what = "an entry that --root and --strip leave".into();
        return Err(Error::new("", Cause::Missing { what }));
    }
    feeder.send()?;
    reader.drain()
}

/// The name of an entry, and the part of the archive in which its hard links lead.
struct Names<'p> {
    path: Vec<&'p [u8]>,
    subtree: &'p Subtree,
}

fn entry<R: Read>(
    reader: &mut Reader<R>,
    (meta, body): (Meta, Body),
    names: Names<'_>,
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
    whiteouts: Whiteouts,
) -> Result<()> {
    let meta = tree.owned(meta)?;
    let Some((name, dirs)) = names.path.split_last() else {
        return match body {
            Body::Directory => {
                tree.set_meta(Tree::ROOT, meta);
                Ok(())
            }
            _ => Err(Error::new(
                "",
                match &names.subtree.root {
                    Some(part) => Cause::NotDirectory { part: part.clone() },
                    None => Cause::Name,
                },
            )),
        };
    };
    let dir = tree.parent_for(dirs)?;
    let over = match whiteouts {
        Whiteouts::Files => Over::Files,
        Whiteouts::Removals => Over::Everything,
    };
    if whiteouts == Whiteouts::Removals
        && let Some(hidden) = name.strip_prefix(b".wh.")
    {
        match hidden {
            b".wh..opq" => tree.clear_lower(dir),
            // All other names that begin with `.wh..wh.` belong to aufs itself and not to the
            // layer. They are skipped.
            _ if hidden.starts_with(b".wh.") => {}
            _ => tree.remove_lower(dir, hidden),
        }
        return Ok(());
    }
    match body {
        Body::Directory => tree.make_directory(dir, name, meta).map(drop),
        Body::Link(target) => {
            let shown = || String::from_utf8_lossy(&target).into_owned();
            let missing = || Error::new("", Cause::NoTarget { target: shown() });
            let target_parts = parts(&target).map_err(|_| missing())?;
            let target_parts = names.subtree.of(target_parts)?.ok_or_else(missing)?;
            let node = tree.find(&target_parts)?.ok_or_else(missing)?;
            if tree.is_directory(node) {
                return Err(Error::new("", Cause::LinkToDirectory { target: shown() }));
            }
            tree.link(node, dir, name, over)
        }
        Body::File(kind) => {
            let is_regular = matches!(kind, Kind::Regular(_));
            let node = tree.make_file(dir, name, meta, kind, over)?;
            while is_regular && let Some((offset, len)) = reader.next_piece() {
                feeder.data(node, offset, len, &mut |buf| reader.read(buf))?;
            }
            Ok(())
        }
    }
}
