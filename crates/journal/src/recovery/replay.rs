//! The third pass: writes the newest copy of each block in place.

use super::input::Input;
use super::reader::Reader;
use super::revoke::Revoked;
use super::scan::{Scanned, Transaction};
use crate::error::Error;
use crate::in_place;
use lanefs_device::Device;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::Block;
use lanefs_ondisk::jbd2::{Cause, JournalIncompat, LogChecksums, Tag, TagFlags, Tags, unescape};
use std::collections::BTreeMap;

/// The largest number of blocks written together.
const BATCH: usize = 64;

/// The newest copy of each block.
pub(super) struct Plan {
    copies: BTreeMap<Block, Copy>,
    pub(super) revoked: u64,
}

struct Copy {
    /// The log block with the copy.
    at: u32,
    tag: Tag,
}

impl Copy {
    fn contents(&self, reader: &Reader<'_>) -> Result<Vec<u8>, Error> {
        let mut bytes = reader.read_one(self.at)?;
        if self.tag.flags.contains(TagFlags::ESCAPE) {
            unescape(&mut bytes);
        }
        Ok(bytes)
    }
}

/// A copy that does not match its tag.
struct Wrong {
    at: u32,
    cause: Cause,
}

/// Checks the log and selects the copies to write. Drops the last transaction from `log` if one of
/// its copies is wrong and its commit block may have been written before the copies.
pub(super) fn plan(
    reader: &Reader<'_>,
    log: &mut Scanned,
    input: &Input<'_>,
) -> Result<Plan, Error> {
    loop {
        let revoked = Revoked::of(reader, log)?;
        let mut plan = Plan { copies: BTreeMap::new(), revoked: 0 };
        let mut wrong_in = None;
        for (n, transaction) in log.transactions.iter().enumerate() {
            if let Err(wrong) = plan.add(reader, transaction, &revoked)? {
                wrong_in = Some((n, wrong));
                break;
            }
        }
        let Some((n, wrong)) = wrong_in else {
            plan.check_places(input)?;
            return Ok(plan);
        };
        let is_last = n + 1 == log.transactions.len();
        let is_async = input.superblock.incompat().contains(JournalIncompat::ASYNC_COMMIT);
        if !(is_last && is_async) {
            return Err(Reader::corruption(wrong.at, wrong.cause));
        }
        log.transactions.pop();
    }
}

impl Plan {
    fn add(
        &mut self,
        reader: &Reader<'_>,
        transaction: &Transaction,
        revoked: &Revoked,
    ) -> Result<Result<(), Wrong>, Error> {
        let has_sums = matches!(reader.format.checksums, LogChecksums::V2(_) | LogChecksums::V3(_));
        for descriptor in &transaction.descriptors {
            let block = reader.read(*descriptor)?;
            let tags = Tags::decode(&block, &reader.format)
                .map_err(|cause| Reader::corruption(*descriptor, cause))?;
            for (n, tag) in (1..).zip(tags) {
                if revoked.covers(tag.block, transaction.sequence) {
                    self.revoked += 1;
                    continue;
                }
                let at = reader.after(*descriptor, n);
                if has_sums {
                    let copy = reader.read(at)?;
                    if let Err(cause) = tag.check(&copy, transaction.sequence, &reader.format) {
                        return Ok(Err(Wrong { at, cause }));
                    }
                }
                self.copies.insert(tag.block, Copy { at, tag });
            }
        }
        Ok(Ok(()))
    }

    /// Returns the content that `block` will have, if the log has a copy of it.
    pub(super) fn contents(
        &self,
        reader: &Reader<'_>,
        block: Block,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.copies.get(&block).map(|copy| copy.contents(reader)).transpose()
    }

    /// Refuses the copies if one is for a block outside the file system or for a block of the log
    /// itself.
    fn check_places(&self, input: &Input<'_>) -> Result<(), Error> {
        let wild = |block: &Block| block.0 >= input.blocks || input.map.contains(*block);
        match self.copies.keys().find(|block| wild(block)) {
            Some(block) => Err(Error::WildBlock { block: *block }),
            None => Ok(()),
        }
    }
}

/// Writes the copies in place, durably; the copy of block `last` is written after all others.
/// Returns the number of copies.
pub(super) fn write(
    reader: &Reader<'_>,
    plan: &Plan,
    target: &dyn Device,
    last: Option<Block>,
) -> Result<u64, Error> {
    let mut batch: Vec<(Block, Arc<[u8]>)> = Vec::with_capacity(BATCH);
    for (block, copy) in plan.copies.iter().filter(|(block, _)| Some(**block) != last) {
        batch.push((*block, copy.contents(reader)?.into()));
        if batch.len() == BATCH {
            in_place::write(target, reader.format.block_size, &batch)?;
            batch.clear();
        }
    }
    in_place::write(target, reader.format.block_size, &batch)?;
    target.flush()?;
    if let Some((block, copy)) = last.and_then(|last| plan.copies.get_key_value(&last)) {
        let late = [(*block, copy.contents(reader)?.into())];
        in_place::write(target, reader.format.block_size, &late)?;
        target.flush()?;
    }
    Ok(plan.copies.len() as u64)
}
