//! Copies trees on several threads.

use super::links::{Earlier, Linked, Links, Way};
use super::plan::{Dereference, Existing, INTO_ITSELF, Plan, Recursion, Verbose};
use super::tree::is_list;
use super::{Identity, Meta, Opening, OtherLists, Progress, Seen, Settings};
use super::{Tree, TreeFile, replace};
use crate::cli::{Failure, Report};
use lanefs::{FileType, NewKind, NewNode};
use lanefs_lanes::{Condvar, Mutex, Rank};

/// The number of bytes read and written at once.
const CHUNK: usize = 1 << 20;

/// The smallest buffer, for files whose size is not known.
const LEAST: usize = 4096;

/// The space in bytes that stays free for metadata when a file is overwritten in place.
const SLACK: u64 = 64 << 10;

/// What there is space for when a file is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// The old file and the new one.
    ForBoth,
    /// Either of them, so the file must be overwritten in place.
    ForOne,
    /// Not for the new file.
    TooLittle,
}

/// A directory that exists in the target and whose entries are still to be copied.
struct Work<S: Tree, T: Tree> {
    from: S::Node,
    to: T::Node,
    way: Way,
}

/// A directory whose attributes are set at the end.
struct Made<S: Tree, T: Tree> {
    from: S::Node,
    meta: Meta,
    to: T::Node,
    /// The mode that the directory gets if the copy does not keep the original's mode. `None` if it
    /// has this mode already.
    permissions: Option<u16>,
}

struct Queue<S: Tree, T: Tree> {
    waiting: Vec<Work<S, T>>,
    /// The number of threads that have work. They may add more work.
    busy: usize,
}

/// A further name of a file that another thread was copying.
struct FurtherName<T: Tree> {
    identity: Identity,
    dir: T::Node,
    name: Vec<u8>,
    existing: Existing,
}

/// Copies operands from a source to a target.
pub struct Copier<'a, S: Tree, T: Tree> {
    source: &'a S,
    target: &'a T,
    plan: Plan,
    report: &'a Report,
    progress: &'a Progress,
    queue: Mutex<Queue<S, T>>,
    /// Notified when there is work, or when all work is done.
    changed: Condvar,
    links: &'a Links<T::Node>,
    further: Mutex<Vec<FurtherName<T>>>,
    directories: Mutex<Vec<Made<S, T>>>,
    /// The directories that the copy created, which are no sources: a copy of its own copies would
    /// not end. Empty if no link is followed.
    created: Mutex<Seen>,
}

impl<'a, S: Tree, T: Tree> Copier<'a, S, T> {
    /// Creates a copier that has copied nothing yet.
    pub fn new(
        source: &'a S,
        target: &'a T,
        plan: Plan,
        links: &'a Links<T::Node>,
        report: &'a Report,
        progress: &'a Progress,
    ) -> Copier<'a, S, T> {
        Copier {
            source,
            target,
            plan,
            links,
            report,
            progress,
            queue: Mutex::new(Rank::Bucket, Queue { waiting: Vec::new(), busy: 0 }),
            changed: Condvar::new(),
            further: Mutex::new(Rank::Bucket, Vec::new()),
            directories: Mutex::new(Rank::Bucket, Vec::new()),
            created: Mutex::new(Rank::Bucket, Seen::default()),
        }
    }

    /// Returns whether an operand is a directory, or a followed link to a directory.
    pub fn is_directory(&self, from: &S::Node) -> Result<bool, Failure> {
        let from = self.resolve(from, self.plan.dereference != Dereference::Never)?;
        Ok(self.source.meta(&from)?.file_type == FileType::Directory)
    }

    /// Copies an operand to `name` in `dir`; [`Copier::copy_waiting`] copies the contents of
    /// directories. Reports a failure, and then returns false.
    pub fn copy(&self, from: &S::Node, dir: &T::Node, name: &[u8]) -> bool {
        let follow = self.plan.dereference != Dereference::Never;
        let done = self
            .resolve(from, follow)
            .and_then(|from| self.copy_entry(&from, dir, name, self.plan.existing, &Way::EMPTY));
        self.report.given(done).is_some()
    }

    /// Returns whether the existing file `there` is the operand itself, which then stays as it is.
    pub fn keeps(&self, from: &S::Node, there: &Meta) -> Result<bool, Failure> {
        Ok(self.plan.existing == Existing::Keep
            && self.source.meta(from)?.identity == there.identity)
    }

    /// Returns whether a copy can take the place of an existing file of this type.
    pub fn overwrites(&self, there: FileType) -> bool {
        match self.plan.existing {
            Existing::Overwrite => there != FileType::Directory,
            Existing::Replace => true,
            Existing::Keep | Existing::Refuse => false,
        }
    }

    /// Queues the contents of directory `from` to be copied into the existing directory `to`.
    /// [`Copier::copy_waiting`] copies them, and [`Copier::finish`] gives `to` the attributes of
    /// `from`.
    pub fn copy_into(&self, from: &S::Node, to: &T::Node) {
        let meta = self.source.meta(from).and_then(|meta| match self.plan.recursion {
            Recursion::FilesOnly => Err(self.needs_recursion(from)),
            Recursion::Trees => Ok(meta),
        });
        self.report.check(meta.map(|meta| self.later(from, &meta, to, None, &Way::EMPTY)));
    }

    fn needs_recursion(&self, dir: &S::Node) -> Failure {
        Failure::new(self.source.show(dir), "is a directory: -r copies it")
    }

    /// Copies the contents of waiting directories on several threads. Two operands with the same
    /// name must not be copied at once: two threads would write the same files.
    pub fn copy_waiting(&self) {
        if self.queue.lock().waiting.is_empty() {
            return;
        }
        let workers = self.plan.workers.max(1);
        if workers == 1 {
            self.work();
        } else {
            std::thread::scope(|scope| {
                let spawn = |_| scope.spawn(|| self.work());
                let threads: Vec<_> = (0..workers).map(spawn).collect();
                for thread in threads {
                    if thread.join().is_err() {
                        self.report.fail("a thread panicked: not everything was copied");
                    }
                }
            });
        }
    }

    /// Adds the further names of files, and sets the attributes of directories. Called after each
    /// operand: of two that fill one directory, the last gives it its attributes.
    pub fn finish(&self) {
        self.name_further();
        let directories = std::mem::take(&mut *self.directories.lock());
        // What is in a directory comes first, since the directory's own mode may bar the way to it.
        for Made { from, meta, to, permissions } in directories.into_iter().rev() {
            let done = self.settings(&from, &meta).and_then(|mut settings| {
                settings.permissions = settings.permissions.or(permissions);
                self.target.set(&to, &settings)
            });
            self.report.check(done);
        }
        self.progress.done();
    }

    fn work(&self) {
        let existing = self.plan.existing.below();
        while let Some(work) = self.next_work() {
            let _busy = Busy(self);
            let (names, read) = self.source.names(&work.from);
            self.report.check(read);
            for name in names {
                let follow = self.plan.dereference == Dereference::Always;
                let done = self
                    .source
                    .child(&work.from, &name)
                    .and_then(|child| self.resolve(&child, follow))
                    .and_then(|child| {
                        self.copy_entry(&child, &work.to, &name, existing, &work.way)
                    });
                self.report.check(done);
            }
        }
    }

    fn next_work(&self) -> Option<Work<S, T>> {
        let mut queue = self.queue.lock();
        loop {
            // The directory added last is taken first. This walks the tree depth first, so that few
            // directories wait.
            if let Some(work) = queue.waiting.pop() {
                queue.busy += 1;
                return Some(work);
            }
            if queue.busy == 0 {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    fn resolve(&self, node: &S::Node, follow: bool) -> Result<S::Node, Failure> {
        if follow && self.source.meta(node)?.file_type == FileType::Symlink {
            self.source.follow(node)
        } else {
            Ok(node.clone())
        }
    }

    /// Copies a file that was found in the last directory of `way`.
    fn copy_entry(
        &self,
        from: &S::Node,
        dir: &T::Node,
        name: &[u8],
        existing: Existing,
        way: &Way,
    ) -> Result<(), Failure> {
        let meta = self.source.meta(from)?;
        let is_dir = meta.file_type == FileType::Directory;
        if is_dir && way.iter().any(|above| *above == meta.identity) {
            let why = "a link leads back to this directory, so the copy would not end";
            return Err(Failure::new(self.source.show(from), why));
        }
        if is_dir && self.created.lock().contains(meta.identity) {
            return Err(Failure::new(self.source.show(from), INTO_ITSELF));
        }
        if is_dir && self.plan.recursion == Recursion::FilesOnly {
            return Err(self.needs_recursion(from));
        }
        let there = self.target.look(dir, name)?;
        let shown = || self.target.show_entry(dir, name);
        if let Some((node, there)) = &there {
            let is_same = there.identity == meta.identity || self.leads_to(from, &meta, there);
            let would_fill = existing == Existing::Overwrite && meta.file_type == FileType::Regular;
            let why = match (is_dir, there.file_type == FileType::Directory) {
                (false, false) if existing == Existing::Keep => return Ok(()),
                _ if is_same => Some("source and destination are the same file"),
                _ if existing == Existing::Refuse => Some("exists"),
                (true, true) if existing == Existing::Replace => None,
                (true, true) => {
                    self.later(from, &meta, node, None, way);
                    return Ok(());
                }
                (true, false) => Some("exists and is not a directory"),
                (false, true) => Some("exists and is a directory"),
                (false, false) if would_fill && is_special(there.file_type) => {
                    Some("exists and is a device, FIFO or socket")
                }
                (false, false) => None,
            };
            if let Some(why) = why {
                return Err(Failure::new(shown(), why));
            }
        }
        if self.plan.verbose == Verbose::Yes {
            let line = format!("{} -> {}", self.source.show(from), shown());
            // The copy continues even if standard output is closed.
            self.report.printed(self.progress.say(&line));
        }
        if is_dir {
            return self.begin_dir(from, &meta, dir, name, there.is_some(), way);
        }
        if self.plan.keep.links {
            match self.links.begin(&meta) {
                Earlier::Nothing => {}
                Earlier::Copied(first) => return self.name_again(&first, dir, name, existing),
                Earlier::Begun => {
                    let (identity, dir, name) = (meta.identity, dir.clone(), name.to_vec());
                    self.further.lock().push(FurtherName { identity, dir, name, existing });
                    return Ok(());
                }
            }
        }
        let copied = self.copy_file(from, &meta, dir, name, there.as_ref(), existing);
        self.note_copy(&meta, dir, name, copied)?;
        self.progress.show();
        Ok(())
    }

    /// Notes the copy of a file, or that it failed, for the file's further names.
    fn note_copy(
        &self,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
        copied: Result<T::Node, Failure>,
    ) -> Result<(), Failure> {
        if !self.plan.keep.links {
            return copied.map(drop);
        }
        let linked = copied.and_then(|node| {
            let there = self.target.look(dir, name)?;
            Ok(there.map(|(_, there)| Linked { node, identity: there.identity }))
        });
        match linked {
            Ok(Some(linked)) => self.links.copied(meta, linked),
            Ok(None) => self.links.failed(meta),
            Err(failure) => {
                self.links.failed(meta);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Creates a directory, or puts a new one in the place of an empty one. Queues its contents.
    fn begin_dir(
        &self,
        from: &S::Node,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
        exists: bool,
        way: &Way,
    ) -> Result<(), Failure> {
        let new = self.new_node(meta, NewKind::Directory);
        let made = match exists {
            true => replace(self.target, dir, name, |temporary| {
                self.target.make(dir, temporary, new).map(drop)
            })?,
            false => self.target.make(dir, name, new)?,
        };
        let (_, there) = self.target.look(&made, b".")?.ok_or_else(|| {
            Failure::new(self.target.show_entry(dir, name), "removed while it was copied")
        })?;
        if self.plan.dereference != Dereference::Never {
            self.created.lock().insert(there.identity);
        }
        let mut permissions = None;
        if !self.plan.keep.mode {
            // Like cp(1): until the contents are copied, only the owner may write to the directory,
            // whatever its mode will be.
            let group_writes = meta.permissions & 0o022 & !self.plan.umask;
            let last = there.permissions | group_writes;
            let now = there.permissions | 0o700;
            if now != there.permissions {
                let settings = Settings { permissions: Some(now), ..Settings::default() };
                self.target.set(&made, &settings)?;
            }
            permissions = (last != now).then_some(last);
        }
        self.later(from, meta, &made, permissions, way);
        Ok(())
    }

    /// Copies a file that is not a directory. Only a regular file is overwritten; anything else is
    /// replaced. If hard links are kept, a file that has other names is replaced too, because its
    /// other names must keep the old contents.
    fn copy_file(
        &self,
        from: &S::Node,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
        there: Option<&(T::Node, Meta)>,
        existing: Existing,
    ) -> Result<T::Node, Failure> {
        let settings = self.settings(from, meta)?;
        let Some((node, old)) = there else {
            let made = self.make(from, meta, dir, name, Opening::New)?;
            return self.target.set(&made, &settings).map(|()| made);
        };
        let overwrites = existing == Existing::Overwrite
            && meta.file_type == FileType::Regular
            && old.file_type == FileType::Regular
            && !(self.plan.keep.links && old.links > 1);
        let of_old = if overwrites { self.target.replacement(node)? } else { None };
        let space = if overwrites { self.space(meta, old, dir)? } else { Space::ForBoth };
        match (of_old, space) {
            (_, Space::TooLittle) => {
                Err(Failure::new(self.target.show_entry(dir, name), "no space left in the target"))
            }
            (of_old, Space::ForBoth) if of_old.is_some() || !overwrites => {
                replace(self.target, dir, name, |temporary| {
                    let made = self.make(from, meta, dir, temporary, Opening::New)?;
                    if let Some(of_old) = &of_old {
                        self.target.set(&made, of_old)?;
                    }
                    self.target.set(&made, &settings)
                })
            }
            _ => {
                let made = self.make(from, meta, dir, name, Opening::Emptied)?;
                self.target.set(&made, &settings).map(|()| made)
            }
        }
    }

    /// Returns whether there is space to overwrite `old`.
    fn space(&self, meta: &Meta, old: &Meta, dir: &T::Node) -> Result<Space, Failure> {
        let wanted = meta.size.saturating_add(meta.size / 64).saturating_add(SLACK);
        let free = self.target.free_space(dir)?;
        let freed = old.sectors.saturating_mul(512).min(old.size);
        // A sparse file needs less than its size, but how much is not known before it is copied.
        let sparse = meta.sectors.saturating_mul(512) < meta.size;
        Ok(match wanted {
            wanted if wanted <= free => Space::ForBoth,
            wanted if wanted <= free.saturating_add(freed) => Space::ForOne,
            _ if sparse => Space::ForBoth,
            _ => Space::TooLittle,
        })
    }

    /// Returns whether `from` is a symbolic link to the file `there`, which the link would replace.
    fn leads_to(&self, from: &S::Node, meta: &Meta, there: &Meta) -> bool {
        let follow = || self.source.follow(from).and_then(|node| self.source.meta(&node));
        meta.file_type == FileType::Symlink
            && there.file_type != FileType::Symlink
            && follow().is_ok_and(|found| found.identity == there.identity)
    }

    /// Creates a file that is not a directory, and fills it.
    fn make(
        &self,
        from: &S::Node,
        meta: &Meta,
        dir: &T::Node,
        name: &[u8],
        opening: Opening,
    ) -> Result<T::Node, Failure> {
        let kind = match meta.file_type {
            FileType::Regular => {
                // The source is opened first, because an existing file must stay if that fails.
                let mut content = self.source.open(from)?;
                let new = self.new_node(meta, NewKind::Regular);
                let (made, mut sink) = self.target.make_file(dir, name, new, opening)?;
                self.fill(&mut content, &mut sink, meta.size)?;
                return Ok(made);
            }
            FileType::Symlink => {
                let target = self.source.read_link(from)?;
                let kind = NewKind::Symlink(&target);
                return self.target.make(dir, name, NewNode { kind, permissions: 0o777, umask: 0 });
            }
            FileType::Directory => NewKind::Directory,
            FileType::CharDevice => NewKind::CharDevice(meta.rdev),
            FileType::BlockDevice => NewKind::BlockDevice(meta.rdev),
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
        };
        self.target.make(dir, name, self.new_node(meta, kind))
    }

    fn fill(
        &self,
        content: &mut S::File<'_>,
        sink: &mut T::File<'_>,
        size: u64,
    ) -> Result<(), Failure> {
        let mut buf = vec![0; usize::try_from(size).unwrap_or(CHUNK).clamp(LEAST, CHUNK)];
        let mut end = 0;
        while let Some((start, stop)) = content.data_after(end)? {
            let mut at = start;
            while at < stop {
                let want = usize::try_from(stop - at).unwrap_or(CHUNK).min(buf.len());
                let Some(part) = buf.get_mut(..want) else { break };
                let read = content.read_at(at, part)?;
                // The file ends here, even if `size` or `stop` is larger.
                if read == 0 {
                    return Ok(());
                }
                sink.write_at(at, part.get(..read).unwrap_or_default())?;
                self.progress.copied_bytes(read as u64);
                at += read as u64;
            }
            if at == start {
                break;
            }
            end = at;
        }
        if size > end {
            sink.set_len(size)?;
        }
        Ok(())
    }

    fn name_further(&self) {
        let further = std::mem::take(&mut *self.further.lock());
        for FurtherName { identity, dir, name, existing } in further {
            match self.links.copy_of(identity) {
                Some(first) => self.report.check(self.name_again(&first, &dir, &name, existing)),
                None => self.report.fail(Failure::new(
                    self.target.show_entry(&dir, &name),
                    "not linked: the first name of this file could not be copied",
                )),
            }
        }
    }

    /// Gives the copy `first` a further name. This name may exist: a file was there before the
    /// copy, or the copy has created a name that differs only in case.
    fn name_again(
        &self,
        first: &Linked<T::Node>,
        dir: &T::Node,
        name: &[u8],
        existing: Existing,
    ) -> Result<(), Failure> {
        match self.target.look(dir, name)? {
            Some(_) if existing == Existing::Refuse => {
                Err(Failure::new(self.target.show_entry(dir, name), "exists"))
            }
            Some((_, there)) if there.identity == first.identity => Ok(()),
            Some(_) if existing == Existing::Keep => Ok(()),
            Some(_) => replace(self.target, dir, name, |temporary| {
                self.target.link(&first.node, dir, temporary)
            })
            .map(drop),
            None => self.target.link(&first.node, dir, name),
        }
    }

    fn later(
        &self,
        from: &S::Node,
        meta: &Meta,
        to: &T::Node,
        permissions: Option<u16>,
        before: &Way,
    ) {
        // Nodes are cloned before the two locks below are taken, because cloning takes a reference
        // to an inode and may thus take a lock.
        let made = Made { from: from.clone(), meta: *meta, to: to.clone(), permissions };
        let way = match self.plan.dereference {
            Dereference::Always => before.with(meta.identity),
            Dereference::Operands | Dereference::Never => Way::EMPTY,
        };
        let work = Work { from: from.clone(), to: to.clone(), way };
        self.directories.lock().push(made);
        self.queue.lock().waiting.push(work);
        self.changed.notify_one();
    }

    /// Describes the copy of a file when it is created. If the copy keeps the original's mode, the
    /// mode is set later, and until then only the owner has access.
    fn new_node<'k>(&self, meta: &Meta, kind: NewKind<'k>) -> NewNode<'k> {
        let is_dir = meta.file_type == FileType::Directory;
        let permissions = match (self.plan.keep.mode, is_dir) {
            (true, true) => 0o700,
            (true, false) => 0o600,
            (false, true) => meta.permissions & 0o1755,
            (false, false) => meta.permissions & 0o777,
        };
        NewNode { kind, permissions, umask: self.plan.umask }
    }

    fn settings(&self, from: &S::Node, meta: &Meta) -> Result<Settings, Failure> {
        let keep = self.plan.keep;
        let is_link = meta.file_type == FileType::Symlink;
        let mut attributes = Vec::new();
        if keep.attributes || keep.mode {
            attributes = self.source.attributes(from)?;
            attributes.retain(|attribute| keep.attributes || is_list(attribute));
        }
        Ok(Settings {
            owner: self.plan.owner.or(keep.owner.then_some((meta.uid, meta.gid))),
            permissions: (keep.mode && !is_link).then_some(meta.permissions),
            attributes,
            other_lists: match keep.mode && !is_link {
                true => OtherLists::Removed,
                false => OtherLists::Kept,
            },
            project: None,
            times: keep.times.then_some((meta.atime, meta.mtime)),
        })
    }
}

/// Marks a thread as having work. The other threads wait for work that this thread may add.
/// Dropping the value marks the end of the thread's work, also after a panic.
struct Busy<'c, 'a, S: Tree, T: Tree>(&'c Copier<'a, S, T>);

impl<S: Tree, T: Tree> Drop for Busy<'_, '_, S, T> {
    fn drop(&mut self) {
        self.0.queue.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}

/// Returns whether a file is a device, FIFO or socket.
fn is_special(file_type: FileType) -> bool {
    !matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}
