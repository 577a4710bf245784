//! The second pass: collects freed blocks and the transactions that freed them.

use super::reader::Reader;
use super::scan::Scanned;
use crate::error::Error;
use lanefs_ondisk::Block;
use lanefs_ondisk::jbd2::{Revokes, Sequence, Tags};
use std::collections::HashMap;

/// The blocks with copies in the log, each with the last transaction that revoked it. Revoke
/// records of other blocks are ignored, because they have no effect, and a hostile log could have
/// very many.
pub(super) struct Revoked {
    last: HashMap<Block, Option<Sequence>>,
}

impl Revoked {
    pub(super) fn of(reader: &Reader<'_>, log: &Scanned) -> Result<Revoked, Error> {
        let mut last = HashMap::new();
        for at in log.transactions.iter().flat_map(|t| &t.descriptors) {
            let block = reader.read_one(*at)?;
            let tags = Tags::decode(&block, &reader.format)
                .map_err(|cause| Reader::corruption(*at, cause))?;
            last.extend(tags.map(|tag| (tag.block, None)));
        }
        for transaction in &log.transactions {
            for at in &transaction.revokes {
                let block = reader.read_one(*at)?;
                let records = Revokes::decode(&block, &reader.format)
                    .map_err(|cause| Reader::corruption(*at, cause))?;
                for block in records {
                    // Transactions are visited in order, so a later transaction replaces an earlier
                    // one.
                    last.entry(block).and_modify(|t| *t = Some(transaction.sequence));
                }
            }
        }
        Ok(Revoked { last })
    }

    /// Returns whether the copy of `block` in transaction `sequence` must not be replayed because
    /// that transaction or a later one freed the block.
    pub(super) fn covers(&self, block: Block, sequence: Sequence) -> bool {
        let revoked = self.last.get(&block).copied().flatten();
        revoked.is_some_and(|revoked| !revoked.is_before(sequence))
    }
}
