//! Confines the process to what its task needs, before it reads what a stranger wrote.
//!
//! Four walls, each as far as the kernel has it. **Landlock**: only files beneath named paths are
//! opened, made, removed or truncated; no signal and no abstract socket leads out. **seccomp**:
//! system calls that landlock does not restrain fail with EPERM (`calls.rs`). **Capabilities**:
//! all are dropped that are not named, for good. **Limits**: no core dump; no more open files than
//! now. What is open before stays open, and the process can neither leave the jail nor gain rights
//! by a program that it runs.
#![forbid(unsafe_code)]

mod calls;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::error::Error;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// A right of root that a jailed process may keep if it has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// To give files to other owners (CAP_CHOWN).
    Chown,
    /// To open files whatever their mode says (CAP_DAC_OVERRIDE).
    DacOverride,
    /// To change attributes of files of other owners (CAP_FOWNER).
    Fowner,
}

impl Capability {
    fn set(self) -> CapabilitySet {
        match self {
            Capability::Chown => CapabilitySet::CHOWN,
            Capability::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Capability::Fowner => CapabilitySet::FOWNER,
        }
    }
}

/// What a process may still do in the jail. The default is nothing.
#[derive(Debug, Clone)]
#[must_use]
pub struct Jail {
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    make: Vec<PathBuf>,
    sockets: bool,
    attributes: bool,
    kept: CapabilitySet,
}

impl Default for Jail {
    fn default() -> Jail {
        Jail::new()
    }
}

impl Jail {
    /// Returns a jail in which nothing is allowed.
    pub fn new() -> Jail {
        let (read, write, make) = (Vec::new(), Vec::new(), Vec::new());
        Jail { read, write, make, sockets: false, attributes: false, kept: CapabilitySet::empty() }
    }

    /// Allows reading these files, and all beneath these directories. Links are followed now. What
    /// does not exist is left out.
    pub fn read(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Jail {
        self.read.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Allows reading, writing and truncating them too.
    pub fn write(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Jail {
        self.write.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Allows making, renaming and removing files in these directories too.
    pub fn make_in(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Jail {
        self.make.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Allows connections to other programs and machines.
    pub fn sockets(mut self) -> Jail {
        self.sockets = true;
        self
    }

    /// Allows changing mode, owner, times and extended attributes of open files.
    pub fn attributes(mut self) -> Jail {
        self.attributes = true;
        self
    }

    /// Keeps a capability, if the process has it.
    pub fn keep(mut self, capability: Capability) -> Jail {
        self.kept |= capability.set();
        self
    }

    /// Confines the whole process, for the rest of its life. Call this before the process reads
    /// anything foreign. A wall that this kernel or container does not have is left out:
    /// [`Walls::missing`] tells.
    ///
    /// # Errors
    /// The process has several threads, of which landlock would bind only the calling one, or
    /// their number cannot be seen. Nothing is confined then.
    pub fn enter(&self) -> Result<Walls, NotAlone> {
        // A directory has a link from its name, one from itself, and one from each directory in it.
        match std::fs::metadata("/proc/self/task").map(|tasks| tasks.nlink()) {
            Ok(..=3) => {}
            Ok(links) => return Err(NotAlone { threads: Some(links - 2) }),
            Err(_) => return Err(NotAlone { threads: None }),
        }
        let mut missing = Vec::new();
        let mut wall = |name: &'static str, built: Result<(), Box<dyn Error>>| {
            missing.extend(built.err().map(|why| format!("{name}: {why}")));
        };
        wall("limits", limit());
        wall("capabilities", self.drop_capabilities());
        wall("landlock", self.landlock());
        // The last, because it forbids building the others.
        wall("seccomp", calls::filter(self.sockets, self.attributes));
        Ok(Walls { missing })
    }

    fn drop_capabilities(&self) -> Result<(), Box<dyn Error>> {
        let permitted = capabilities(None)?.permitted & self.kept;
        let inheritable = CapabilitySet::empty();
        let sets = CapabilitySets { effective: permitted, permitted, inheritable };
        Ok(set_capabilities(None, sets)?)
    }

    fn landlock(&self) -> Result<(), Box<dyn Error>> {
        let mut ports = AccessNet::from_all(ABI::V4);
        if self.sockets {
            ports.remove(AccessNet::ConnectTcp);
        }
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))?
            .handle_access(ports)?
            .scope(Scope::from_all(ABI::V6))?
            .create()?;
        // By ioctl a block device tells the size of its sectors.
        let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::IoctlDev;
        let write = read | AccessFs::WriteFile | AccessFs::Truncate;
        let make = write | AccessFs::MakeReg | AccessFs::MakeSym | AccessFs::RemoveFile;
        let sets: [(&[PathBuf], BitFlags<AccessFs>); 3] =
            [(&self.read, read), (&self.write, write), (&self.make, make)];
        for (paths, access) in sets {
            for rule in path_beneath_rules(paths, access) {
                // Pipes and the like take no rule, and need none.
                let _ = (&mut rules).add_rule(rule?);
            }
        }
        match rules.restrict_self()?.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            RulesetStatus::PartiallyEnforced => Err("this kernel has only a part of it".into()),
            RulesetStatus::NotEnforced => Err("this kernel does not have it".into()),
        }
    }
}

fn limit() -> Result<(), Box<dyn Error>> {
    let files = getrlimit(Resource::Nofile).current;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?)
}

/// The walls that were built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walls {
    missing: Vec<String>,
}

impl Walls {
    /// Returns the walls that are missing or incomplete, each with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}

/// A jail cannot be entered, because the process is not known to have one thread only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAlone {
    /// The number of threads, if it is known.
    pub threads: Option<u64>,
}

impl fmt::Display for NotAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.threads {
            Some(threads) => write!(f, "the process has {threads} threads already"),
            None => f.write_str("/proc does not show how many threads the process has"),
        }
    }
}

impl Error for NotAlone {}
