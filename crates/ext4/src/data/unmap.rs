//! Frees mappings, in steps of one handle each.

use crate::data::file_data::FileData;
use lanefs_ondisk::{FileBlock, FileType};
use lanefs_plan::Error;
use lanefs_plan::extent::END;
use lanefs_plan::mapping::Form;
use std::ops::Range;

/// The largest number of groups in which one handle frees blocks; it limits the handle's
/// credits.
const STEP: u32 = 16;
/// The largest number of directory blocks that one handle frees; each block is revoked.
const DIRECTORY_STEP: u32 = 1024;

impl FileData<'_> {
    /// Frees all mappings from file block `keep` on, in steps of one handle each. The caller holds
    /// the operation lock exclusively.
    pub(crate) fn free_from(&self, keep: u32) -> Result<(), Error> {
        self.unmap(keep..END)
    }

    /// Frees the mappings of `range`, in steps of one handle each. A step covers at most one leaf
    /// of the tree and at most [`STEP`] extents, whose blocks are in at most [`STEP`] groups. The
    /// caller holds the operation lock exclusively.
    pub(crate) fn unmap(&self, range: Range<u32>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let end = match (self.step_end(at..range.end)?, self.form()) {
                (Some(end), _) => end,
                (None, Form::Extents) => return Ok(()),
                // A block map may have nodes that contain no mapping. This step frees these nodes.
                (None, Form::BlockMap) => range.end,
            };
            let change = self.plan_mapping(at..end, &[])?;
            at = change.covered.end.max(at + 1);
            let mut handle = self.objects.join(change.credits + 1)?;
            self.apply_mapping(&mut handle, change, |_| ());
        }
        Ok(())
    }

    /// Returns the file block up to which one handle can free mappings of `range`, or `None` if
    /// there are no mappings.
    pub(crate) fn step_end(&self, range: Range<u32>) -> Result<Option<u32>, Error> {
        let most = match self.inode.file_type {
            FileType::Directory => DIRECTORY_STEP,
            _ => u32::MAX,
        };
        self.with_map(|map| {
            let (mut groups, mut blocks) = (0, 0);
            let mut found = false;
            for extent in map.iter_from(FileBlock(range.start)) {
                if extent.start.0 >= range.end {
                    break;
                }
                let from = extent.start.0.max(range.start);
                if extent.end() - from > most - blocks {
                    return Some((from + most - blocks).min(range.end));
                }
                blocks += extent.end() - from;
                groups += self.objects.volume.groups_of(extent.block, extent.len);
                if found && groups > STEP {
                    return Some(extent.start.0);
                }
                found = true;
            }
            found.then_some(range.end)
        })
    }
}
