//! Runs operations on the file system and on the model, and records each operation for the checks
//! after a crash.

use super::contents::{Change, What};
use super::history::{History, Promise};
use super::words;
use crate::conditions::Paced;
use crate::library::Library;
use crate::model::Model;
use crate::op::{File, Op, Path, Tree};
use lanefs_device::RecordingDevice;
use lanefs_ext4::{Error, Fallocate, Fs, Privilege, SyncMode};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Recorder<'a> {
    pub device: Arc<RecordingDevice>,
    pub fs: Arc<Fs>,
    pub library: Library,
    pub model: Model,
    pub history: History,
    /// For each inode (by its number in the model), the last operation that certainly changed the
    /// inode.
    pub touched: BTreeMap<u64, usize>,
    pub paced: &'a Paced,
}

impl Recorder<'_> {
    /// Releases the file system and returns the record.
    pub fn into_history(self) -> History {
        self.history
    }

    fn number(&self) -> usize {
        self.history.ops.len()
    }

    /// Runs an operation on the file system and on the model. If the operation changes a file's
    /// data, the caller must record that change.
    pub fn op(&mut self, op: Op) -> Result<(), String> {
        self.begin(format!("{op:?}"));
        let number = self.number() - 1;
        let ids: Vec<u64> = match &op {
            Op::Rename { path, new, .. } => [path, new].iter().filter_map(|p| self.id(p)).collect(),
            Op::Create { .. } | Op::Unlink { .. } | Op::Rmdir { .. } => Vec::new(),
            Op::Link { file: File::At(path), .. }
            | Op::SetXattr { path, .. }
            | Op::Chmod { path, .. } => self.id(path).into_iter().collect(),
            _ => Vec::new(),
        };
        let got = self.library.act(&op);
        let want = self.model.apply(&op);
        if got.as_ref().map_err(|e| e.errno()) != want.as_ref().map_err(|e| *e) {
            return Err(format!("{op:?} gave {got:?}, should give {want:?}"));
        }
        if let Op::Create { path, .. } = &op {
            self.touched.extend(self.id(path).map(|id| (id, number)));
        }
        self.touched.extend(ids.into_iter().map(|id| (id, number)));
        self.end();
        Ok(())
    }

    /// Returns the number of a file's node in the model.
    pub fn id(&self, path: &Path) -> Option<u64> {
        self.model.id_of(&File::At(path.clone()))
    }

    fn begin(&mut self, words: String) {
        self.history.begun.push(self.device.mark());
        self.history.ops.push(words);
    }

    fn end(&mut self) {
        self.paced.op();
        self.history.shapes.push(self.model.shape());
        self.history.ids.push(self.model.ids());
    }

    fn changed(&mut self, id: u64, start: u64, end: u64, what: What) {
        let op = self.number() - 1;
        let change = Change { op, start, end, what };
        self.history.changes.entry(id).or_default().push(change);
    }

    /// Writes words into a file.
    pub fn write(&mut self, path: &Path, offset: u64, len: usize) -> Result<(), String> {
        let file = File::At(path.clone());
        let (Some(id), size) = (self.model.id_of(&file), self.model.size_of(&file)) else {
            return Ok(());
        };
        self.begin(format!("write {} {offset}+{len}", crate::op::show(path)));
        let number = self.number() - 1;
        let bytes = words(id, number, offset, len);
        let inode = self.library.resolve(path).map_err(|e| e.to_string())?;
        let n = self.fs.write_at(&inode, offset, &bytes, Privilege::Root);
        let n = n.map_err(|e| format!("write: {e}"))?;
        if n < len {
            return Err("no space".into());
        }
        let op = Op::Write { file, offset, len, seed: 1 };
        self.model.apply(&op).map_err(|e| format!("model: {e}"))?;
        self.changed(id, offset, offset + len as u64, What::Written);
        if offset + len as u64 > size {
            self.touched.insert(id, number);
        }
        self.end();
        Ok(())
    }

    /// Truncates a file, or runs a mode of fallocate(2).
    pub fn reshape(&mut self, path: &Path, op: Op) -> Result<(), String> {
        let Some(id) = self.id(path) else { return Ok(()) };
        let old = self.model.size_of(&File::At(path.clone()));
        self.op(op.clone())?;
        let number = self.number() - 1;
        match op {
            Op::Truncate { size, .. } => {
                if size != old {
                    self.touched.insert(id, number);
                }
                self.changed(id, size.min(old), u64::MAX, What::Zeros);
            }
            Op::Fallocate { how, offset, len, .. } => {
                let what = match how {
                    Fallocate::Allocate | Fallocate::AllocateKeepSize => None,
                    Fallocate::CollapseRange => Some(What::Collapsed),
                    Fallocate::InsertRange => Some(What::Inserted),
                    _ => Some(What::Zeros),
                };
                if let Some(what) = what {
                    self.changed(id, offset, offset + len, what);
                }
                if self.model.size_of(&File::At(path.clone())) != old {
                    self.touched.insert(id, number);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Defragments a file. This changes neither the tree nor any data.
    pub fn defragment(&mut self, path: &Path) -> Result<(), String> {
        self.begin(format!("defragment {}", crate::op::show(path)));
        let inode = self.library.resolve(path).map_err(|e| e.to_string())?;
        match self.fs.defragment(&inode, Privilege::Root) {
            Ok(()) | Err(Error::NotSupported | Error::NoSpace) => {}
            Err(error) => return Err(format!("defragment: {error}")),
        }
        self.end();
        Ok(())
    }

    /// Makes a file durable, and records the promise.
    pub fn fsync(&mut self, path: &Path) -> Result<(), String> {
        let Some(id) = self.id(path) else { return Ok(()) };
        self.op(Op::Fsync { file: File::At(path.clone()), mode: SyncMode::Full })?;
        let tree = self.touched.get(&id).copied().unwrap_or(0);
        let data = (Some(id), self.number() - 1);
        self.history.promises.push(Promise { mark: self.device.mark(), tree, data });
        Ok(())
    }

    /// Makes everything durable, and records the promise.
    pub fn sync(&mut self) -> Result<(), String> {
        self.op(Op::Sync)?;
        let op = self.number() - 1;
        self.history.promises.push(Promise {
            mark: self.device.mark(),
            tree: op,
            data: (None, op),
        });
        Ok(())
    }
}
