//! Several changes of one directory as one plan.

use super::{
    DirBlocks, DirContext, Found, Indexing, Plan, find, plan_insert, plan_remove, plan_replace,
};
use crate::Error;
use lanefs_ondisk::dirent::Name;
use lanefs_ondisk::{FileBlock, FileType, Ino};
use std::sync::Arc;

/// A directory with changes that are planned and not applied: each further one is planned on top of
/// them. A rename within one directory, say, removes one entry and adds another, which may be in the
/// same block or need a block that the other appends.
///
/// A [`Found`] holds until the next change.
pub struct Staged<'a> {
    cx: DirContext,
    blocks: Overlay<'a>,
}

/// The blocks as they will be.
struct Overlay<'a> {
    base: &'a dyn DirBlocks,
    plan: Plan,
}

impl DirBlocks for Overlay<'_> {
    fn block(&self, n: FileBlock) -> Result<Arc<[u8]>, Error> {
        if let Some((_, block)) = self.plan.updates.iter().find(|(updated, _)| *updated == n) {
            return Ok(block.clone());
        }
        let appended =
            n.0.checked_sub(self.base.count()).and_then(|at| self.plan.appended.get(at as usize));
        match appended {
            Some(block) => Ok(block.clone()),
            None => self.base.block(n),
        }
    }

    fn count(&self) -> u32 {
        self.base.count().saturating_add(self.plan.appended.len() as u32)
    }
}

impl<'a> Staged<'a> {
    /// Nothing is changed yet.
    pub fn new(cx: &DirContext, blocks: &'a dyn DirBlocks) -> Staged<'a> {
        Staged { cx: *cx, blocks: Overlay { base: blocks, plan: Plan::default() } }
    }

    /// Finds an entry as the directory will be. Errors as [`find`].
    pub fn find(&self, name: Name<'_>) -> Result<Option<Found>, Error> {
        find(&self.cx, &self.blocks, name)
    }

    /// Adds an entry. Errors as [`plan_insert`]; after one the changes are those before.
    pub fn insert(&mut self, name: Name<'_>, ino: Ino, file_type: FileType) -> Result<(), Error> {
        let plan = plan_insert(&self.cx, &self.blocks, name, ino, file_type)?;
        self.add(plan);
        Ok(())
    }

    /// Removes an entry. Errors as [`plan_remove`].
    pub fn remove(&mut self, found: &Found) -> Result<(), Error> {
        let plan = plan_remove(&self.cx, &self.blocks, found)?;
        self.add(plan);
        Ok(())
    }

    /// Lets an entry name another inode. Errors as [`plan_replace`].
    pub fn replace(&mut self, found: &Found, ino: Ino, file_type: FileType) -> Result<(), Error> {
        let plan = plan_replace(&self.cx, &self.blocks, found, ino, file_type)?;
        self.add(plan);
        Ok(())
    }

    /// All changes together.
    pub fn into_plan(self) -> Plan {
        self.blocks.plan
    }

    fn add(&mut self, later: Plan) {
        let count = self.blocks.base.count();
        let plan = &mut self.blocks.plan;
        for (n, block) in later.updates {
            let appended = n.0.checked_sub(count).and_then(|at| plan.appended.get_mut(at as usize));
            let updated = plan.updates.iter_mut().find(|(updated, _)| *updated == n);
            match appended.or(updated.map(|(_, block)| block)) {
                Some(place) => *place = block,
                None => plan.updates.push((n, block)),
            }
        }
        plan.appended.extend(later.appended);
        if later.becomes_indexed {
            plan.becomes_indexed = true;
            self.cx.indexing = Indexing::Indexed;
        }
    }
}
