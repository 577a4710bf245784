//! Applies the entries of an archive to the tree, and passes their data to the feeder.

use crate::entry::Kind;
use crate::error::{Cause, Error, Result};
use crate::pipeline::Feeder;
use crate::tar::{Body, Dialect, Item, Reader};
use crate::tree::{Over, Tree, parts};
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

/// Applies all entries of the archive `input`.
pub(crate) fn archive(
    input: impl Read,
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
    whiteouts: Whiteouts,
) -> Result<()> {
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
        entry(&mut reader, item, tree, feeder, whiteouts).map_err(named)?;
    }
    feeder.send()?;
    reader.drain()
}

fn entry<R: Read>(
    reader: &mut Reader<R>,
    item: Item,
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
    whiteouts: Whiteouts,
) -> Result<()> {
    let Item { path, meta, body } = item;
    let meta = tree.owned(meta)?;
    let parts = parts(&path)?;
    let Some((name, dirs)) = parts.split_last() else {
        return match body {
            Body::Directory => {
                tree.set_meta(Tree::ROOT, meta);
                Ok(())
            }
            _ => Err(Error::new("", Cause::Name)),
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
            let target_parts = crate::tree::parts(&target).map_err(|_| missing())?;
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
