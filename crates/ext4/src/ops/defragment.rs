//! Defragments a file: moves its data to fewer runs of blocks.
//!
//! The data is first copied to claimed blocks. Then handles map the copies in place of the old
//! blocks, a few extents per handle. The old and the new blocks have the same bytes, so a crash
//! between two handles changes nothing for readers.

use crate::alloc::{Claim, Privilege, Request};
use crate::data::file_data::FileData;
use crate::data::holes::take_front;
use crate::data::mapping::EXTENTS_A_STEP;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use lanefs_ondisk::{Block, FileBlock};
use lanefs_plan::Error;
use lanefs_plan::extent::{END, Extent, State};
use lanefs_plan::mapping::Form;

/// The largest number of blocks that are moved at once. Moving them needs at most the same number
/// of free blocks.
const PIECE: u32 = 1 << 18;
/// The length in blocks of the longest extent of written blocks.
const LONGEST: u32 = 32768;
/// The number of bytes that are copied at once.
const COPY: usize = 1 << 20;

/// The new positions of the blocks of a piece.
struct Moved {
    /// The claims, each with its first file block; one claim for each extent.
    claims: Vec<(u32, Claim)>,
    extents: Vec<Extent>,
}

impl Fs {
    /// Moves the data of a file to fewer runs of blocks, where free space permits that. Keeps the
    /// times. A crash loses no data.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the file has a block map, or the file system has `bigalloc`, as
    /// in the kernel; [`Error::NotPermitted`] for an immutable, append-only or verity file;
    /// [`Error::NoSpace`] if there are too few free blocks for a copy.
    pub fn defragment(&self, inode: &InodeRef, by: Privilege) -> Result<(), Error> {
        inode.check_regular()?;
        self.objects.check_writable()?;
        let _exclusive = inode.op.exclusive();
        let rights = inode.rights();
        flags::check_data_changes(&rights)?;
        if flags::is_append_only(&rights) {
            return Err(Error::NotPermitted);
        }
        let data = self.data(inode);
        if data.is_inline() {
            return Ok(());
        }
        if data.form() == Form::BlockMap || !self.objects.volume.clusters().are_blocks() {
            return Err(Error::NotSupported);
        }
        inode.window.give_back();
        // The bytes after the end of the file must be zeros in the copy too.
        let size = inode.attr().size;
        data.prepare_growth(size, size)?;
        let (mut at, mut goal) = (0, None);
        loop {
            let piece = data.piece(at)?;
            let Some(last) = piece.last() else { return Ok(()) };
            at = last.end();
            let placed = data.place_elsewhere(&piece, goal, by)?;
            let placed = placed.map(|moved| data.move_to(&piece, moved)).transpose()?;
            goal = Some(placed.unwrap_or(Block(last.block.0 + u64::from(last.len))));
        }
    }
}

impl FileData<'_> {
    /// Returns the extents from file block `from` on, up to a total of [`PIECE`] blocks.
    fn piece(&self, from: u32) -> Result<Vec<Extent>, Error> {
        self.with_map(|map| {
            let mut left = PIECE;
            let mut piece = Vec::new();
            for extent in map.iter_from(FileBlock(from)) {
                let Some(extent) = extent.clip(&(from..END)) else { continue };
                let end = extent.start.0 + extent.len.min(left);
                left -= extent.len.min(left);
                piece.extend(extent.clip(&(extent.start.0..end)));
                if left == 0 {
                    break;
                }
            }
            piece
        })
    }

    /// Claims other blocks for `piece`, in fewer runs than it has now; `None` if free space does
    /// not permit that.
    fn place_elsewhere(
        &self,
        piece: &[Extent],
        goal: Option<Block>,
        by: Privilege,
    ) -> Result<Option<Moved>, Error> {
        let most = runs(piece, goal);
        let mut left: u32 = piece.iter().map(|extent| extent.len).sum();
        if most <= left.div_ceil(LONGEST) as usize {
            return Ok(None);
        }
        // Every new run must be longer than the average old run, so that there are fewer new runs.
        let longer = left / u32::try_from(most).unwrap_or(u32::MAX) + 1;
        let mut found: Vec<Claim> = Vec::new();
        while left > 0 {
            if found.len() + 1 >= most {
                return Ok(None);
            }
            let after = found.last().map(|claim| Block(claim.start().0 + u64::from(claim.len())));
            let want = left.min(LONGEST);
            let request = Request {
                goal: after.or(goal).unwrap_or(self.goal()),
                want,
                ahead: 0,
                at_least: longer.min(want),
                privilege: by,
                stream: None,
                owner: None,
            };
            let claim = self.objects.claim_blocks(&request)?.into_claim();
            left -= claim.len().min(left);
            found.push(claim);
        }
        Ok(Some(distribute(piece, found)))
    }

    /// Copies the data of `piece`, and maps the copies. Returns the device block after the last
    /// copy.
    fn move_to(&self, piece: &[Extent], moved: Moved) -> Result<Block, Error> {
        let Moved { mut claims, extents } = moved;
        for extent in extents.iter().filter(|extent| extent.state == State::Written) {
            self.copy_to(extent)?;
        }
        self.objects.note_data(self.inode);
        let end = piece.last().map_or(0, Extent::end);
        let mut at = piece.first().map_or(0, |first| first.start.0);
        while at < end {
            let stop = self.step_end(at..end)?.unwrap_or(end);
            let with = extents.iter().filter_map(|extent| extent.clip(&(at..stop)));
            let with: Vec<Extent> = with.take(EXTENTS_A_STEP).collect();
            let stop = if with.len() < EXTENTS_A_STEP {
                stop
            } else {
                with.last().map_or(stop, Extent::end)
            };
            let change = self.plan_mapping(at..stop, &with)?;
            at = change.covered.end.min(stop);
            let used = take_front(&mut claims, at, self.objects.volume.clusters());
            let mut handle = self.objects.join(change.credits + 3 * used.len() as u32 + 1)?;
            for claim in used {
                self.objects.groups.allocate(&mut handle, claim);
            }
            self.apply_mapping(&mut handle, change, |_| ());
        }
        Ok(extents.last().map_or(Block(0), |last| Block(last.block.0 + u64::from(last.len))))
    }

    /// Copies the file's bytes in the range of `extent` to the blocks of `extent`, which are not
    /// mapped yet.
    fn copy_to(&self, extent: &Extent) -> Result<(), Error> {
        let device = &self.objects.volume.device;
        let (from, to) = (
            u64::from(extent.start.0) * self.block_size(),
            u64::from(extent.end()) * self.block_size(),
        );
        let mut buf = vec![0; COPY.min((to - from) as usize)];
        let mut at = from;
        while at < to {
            let len = buf.len().min((to - at) as usize);
            let Some(part) = buf.get_mut(..len) else { break };
            self.read_stored(at, part)?;
            device.write_data_at(extent.block.0 * self.block_size() + (at - from), part)?;
            at += len as u64;
        }
        Ok(())
    }
}

/// Returns the number of runs of device blocks that `piece` consists of. The first run does not
/// count if it starts at block `before`, because it then continues the run that ends there.
fn runs(piece: &[Extent], before: Option<Block>) -> usize {
    let mut next = before;
    let mut count = 0;
    for extent in piece {
        count += usize::from(next != Some(extent.block));
        next = Some(Block(extent.block.0 + u64::from(extent.len)));
    }
    count
}

/// Distributes the blocks of the claims to the extents of `piece`. In total, the claims have as
/// many blocks as the extents.
fn distribute(piece: &[Extent], found: Vec<Claim>) -> Moved {
    let mut moved = Moved { claims: Vec::new(), extents: Vec::new() };
    let mut found = found.into_iter();
    let mut claim = found.next();
    for extent in piece {
        let (mut start, end) = (extent.start.0, extent.end());
        while start < end {
            let Some(rest) = claim.as_mut() else { return moved };
            if rest.len() == 0 {
                claim = found.next();
                continue;
            }
            let len = rest.len().min(end - start);
            let part = rest.split_front(len);
            let block = part.start();
            moved.extents.push(Extent { start: FileBlock(start), len, block, state: extent.state });
            moved.claims.push((start, part));
            start += len;
        }
    }
    moved
}
