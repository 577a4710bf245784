//! Determines the task of a command line, and checks that its options have an effect.

use crate::command::arguments::{Arguments, FILE_SIZE, What};
use crate::efficiency::AIMS;
use crate::record::Record;
use crate::seeds::Seed;
use crate::target::TargetSpec;
use crate::workload::Workload;
use std::fs::{File, Metadata};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The seed (docs/seeds.md) that concerns the array, not the file system.
const OF_ARRAYS: &str = "S4";

/// The task of a run.
#[derive(Debug)]
pub enum Task {
    /// The workloads to run on the targets.
    Workloads(Vec<Workload>),
    /// The seeds of the file system to measure, and whether to measure the seed of arrays.
    Seeds(Vec<Seed>, Arrays),
    /// The workloads to compare with the kernel's ext4.
    Efficiency(Vec<Workload>),
}

/// Whether S4 is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrays {
    /// S4 is measured.
    Measured,
    /// S4 is not measured.
    LeftOut,
}

impl Task {
    /// Returns the task of a command line.
    ///
    /// # Errors
    /// If arguments contradict each other. The error is a message for the user.
    pub fn of(arguments: &Arguments) -> Result<Task, String> {
        let task = match arguments.what.split_first() {
            Some((What::Seeds, only)) => seeds(only)?,
            Some((What::Efficiency, only)) => efficiency(only)?,
            _ => workloads(&arguments.what)?,
        };
        task.check(arguments)?;
        Ok(task)
    }

    /// Refuses an option that would have no effect, since the user expects an effect.
    fn check(&self, arguments: &Arguments) -> Result<(), String> {
        let given = [
            ("--target", !arguments.targets.is_empty()),
            ("--policies", !arguments.policies.is_empty()),
            ("--cache", arguments.cache.is_some()),
            ("--peers", arguments.peers),
            ("--files", arguments.files.is_some()),
            ("--file-size", arguments.file_size.is_some()),
            ("--tree-files", arguments.tree_files.is_some()),
            ("--access-size", arguments.access_size.is_some()),
            ("--mix", arguments.mix.is_some()),
            ("--log", arguments.log.is_some()),
        ];
        for (option, _) in given.into_iter().filter(|(_, given)| *given) {
            if let Some(why) = self.refuses(option, arguments) {
                return Err(format!("{option}: {why}"));
            }
        }
        match (&arguments.json, &arguments.report) {
            (Some(json), Some(report)) if json == report => {
                Err("--json and --report: the same file is given for both".into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the reason why an option has no effect; `None` if the option has an effect.
    fn refuses(&self, option: &str, arguments: &Arguments) -> Option<String> {
        let workloads = match self {
            Task::Seeds(seeds, _) if option == "--log" => {
                let only_arrays = "S4 has arrays in memory, whose journal has a fixed size";
                return seeds.is_empty().then(|| only_arrays.into());
            }
            _ if option == "--log" => {
                return Some("only seeds make images with a journal of this size".into());
            }
            Task::Seeds(..) => {
                return Some(
                    "seeds has its own targets: images in memory with fixed policies and sizes"
                        .into(),
                );
            }
            Task::Efficiency(_) if !matches!(option, "--files" | "--file-size") => {
                return Some(
                    "efficiency has its own targets: the library in memory, and the kernel's ext4"
                        .into(),
                );
            }
            Task::Efficiency(workloads) | Task::Workloads(workloads) => workloads,
        };
        let mixed = arguments.mix.clone().unwrap_or_default();
        let is_mixed = workloads.contains(&Workload::Mix);
        let only = |uses: fn(Workload) -> bool| {
            let is_used =
                workloads.iter().copied().any(uses) || (is_mixed && mixed.workloads().any(uses));
            (!is_used).then(|| {
                let names: Vec<&str> =
                    Workload::ALL.into_iter().filter(|w| uses(*w)).map(Workload::name).collect();
                format!("only used by {}", names.join(", "))
            })
        };
        let targets = arguments.specs();
        match option {
            "--policies" if !targets.iter().any(TargetSpec::is_in_memory) => {
                Some("only lib:ram and lib:raid5 take policies, and neither is a target".into())
            }
            "--policies"
                if !targets.iter().any(TargetSpec::is_array_in_memory)
                    && arguments.policies.iter().any(|named| named.is_of_arrays) =>
            {
                Some("stripe_wake is only for lib:raid5, which is no target".into())
            }
            "--cache" if !targets.iter().any(TargetSpec::is_of_library) => {
                Some("only lib: targets have such a cache, and there is none".into())
            }
            "--files" => only(Workload::looks_at_files),
            "--file-size" => only(Workload::moves_data),
            "--tree-files" => only(Workload::needs_tree),
            "--access-size" => {
                let file = arguments.file_size.unwrap_or(FILE_SIZE);
                let more = arguments.access_size.is_some_and(|kib| kib > file << 10);
                only(Workload::accesses)
                    .or_else(|| more.then(|| format!("larger than the file size of {file} MiB")))
            }
            "--mix" if !is_mixed => Some("only used by mix, which is not measured".into()),
            _ => None,
        }
    }
}

fn workloads(what: &[What]) -> Result<Task, String> {
    if what.is_empty() {
        return Ok(Task::Workloads(Workload::ALL.to_vec()));
    }
    let workload = |what: &What| match what {
        What::Workload(workload) => Ok(*workload),
        What::Seeds => Err("seeds comes first; its parts follow it".into()),
        What::Efficiency => Err("efficiency comes first; its workloads follow it".into()),
        What::Seed(name) => Err(format!("{name} is a seed: lanefs bench seeds {name}")),
        What::FsMark => Err("fsmark is a workload of seeds: lanefs bench seeds fsmark".into()),
    };
    Ok(Task::Workloads(what.iter().map(workload).collect::<Result<_, String>>()?))
}

fn seeds(only: &[What]) -> Result<Task, String> {
    let all = Seed::all();
    for what in only {
        let known = match what {
            What::Workload(workload) => all.iter().any(|seed| seed.workload == *workload),
            What::Seed(_) | What::FsMark => true,
            What::Seeds | What::Efficiency => false,
        };
        if !known {
            let named = |seed: &Seed| format!("{} {}", seed.name, seed.workload);
            let mut known: Vec<String> = all.iter().map(named).collect();
            known.push(format!("{OF_ARRAYS} fsmark"));
            known.sort();
            known.dedup();
            return Err(format!("{}: no such seed; there are {}", what.name(), known.join(", ")));
        }
    }
    let is_wanted = |seed: &Seed| {
        only.is_empty()
            || only.contains(&What::Workload(seed.workload))
            || only.contains(&What::Seed(seed.name))
    };
    let with_arrays =
        only.is_empty() || only.contains(&What::FsMark) || only.contains(&What::Seed(OF_ARRAYS));
    let arrays = if with_arrays { Arrays::Measured } else { Arrays::LeftOut };
    Ok(Task::Seeds(all.into_iter().filter(is_wanted).collect(), arrays))
}

fn efficiency(only: &[What]) -> Result<Task, String> {
    let all = AIMS.map(|aim| aim.workload);
    let wanted = |what: &What| match what {
        What::Workload(workload) if all.contains(workload) => Ok(*workload),
        other => {
            let names = all.map(Workload::name).join(", ");
            Err(format!("{}: not a workload of efficiency; there are {names}", other.name()))
        }
    };
    let only = only.iter().map(wanted).collect::<Result<Vec<_>, String>>()?;
    Ok(Task::Efficiency(if only.is_empty() { all.to_vec() } else { only }))
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Workload(workload) => workload.name(),
            What::Seeds => "seeds",
            What::Seed(name) => name,
            What::FsMark => "fsmark",
            What::Efficiency => "efficiency",
        }
    }
}

/// The files of `--json` and `--report`. Both files are opened before measuring, so that a wrong
/// path fails at once. They keep their old contents until there are results to write.
pub struct Output {
    json: Option<OutputFile>,
    report: Option<OutputFile>,
}

pub(super) struct OutputFile {
    path: PathBuf,
    file: File,
    /// Whether this run created the file and has not written to it yet.
    is_empty: bool,
}

impl Output {
    /// Opens the files.
    ///
    /// # Errors
    /// If a file cannot be written to, if the two files are the same, or if a file is also a
    /// target.
    pub fn open(arguments: &Arguments) -> Result<Output, String> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        let output = Output { json: open(&arguments.json)?, report: open(&arguments.report)? };
        if let (Some(json), Some(report)) = (&output.json, &output.report) {
            report.check_is_not(&json.path)?;
        }
        let measured: Vec<PathBuf> = arguments.targets.iter().flat_map(parts).collect();
        for place in [&output.json, &output.report].into_iter().flatten() {
            measured.iter().try_for_each(|path| place.check_is_not(path))?;
        }
        Ok(output)
    }

    /// Writes the results of a run, and returns the failures. If one file fails, the other is still
    /// written.
    pub fn save(self, record: &Record) -> impl Iterator<Item = String> {
        let json =
            self.json.map(|place| place.write(&format!("{:#}\n", crate::report::json(record))));
        let report = self.report.map(|place| place.write(&crate::html::html(record)));
        json.into_iter().chain(report).filter_map(Result::err)
    }
}

/// Returns the files and devices of a target.
fn parts(spec: &TargetSpec) -> Vec<PathBuf> {
    let TargetSpec::Image(path) = spec else { return Vec::new() };
    match path.to_str().and_then(|path| path.strip_prefix("md:")) {
        Some(members) => members.split(',').map(PathBuf::from).collect(),
        None => vec![path.clone()],
    }
}

/// Returns whether `one` and `other` are the same regular file or block device. False for a
/// terminal or a null device.
fn is_one_file(one: &Metadata, other: &Metadata) -> bool {
    let is_kept = one.is_file() || one.file_type().is_block_device();
    is_kept && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

impl OutputFile {
    pub(super) fn open(path: &Path) -> Result<OutputFile, String> {
        let failed = |error| format!("{}: {error}", path.display());
        let mut options = File::options();
        options.write(true);
        let (file, is_empty) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                (options.open(path).map_err(&failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(OutputFile { path: path.into(), file, is_empty })
    }

    /// Checks that `path` is not this file.
    ///
    /// # Errors
    /// If `path` is this file.
    fn check_is_not(&self, path: &Path) -> Result<(), String> {
        let (Ok(mine), Ok(other)) = (self.file.metadata(), path.metadata()) else { return Ok(()) };
        match is_one_file(&mine, &other) {
            true => Err(format!(
                "{}: it is the same file as {}, which would be overwritten",
                self.path.display(),
                path.display()
            )),
            false => Ok(()),
        }
    }

    pub(super) fn write(mut self, text: &str) -> Result<(), String> {
        self.is_empty = false;
        let file = &mut self.file;
        let written = file.metadata().and_then(|metadata| {
            // A pipe or a terminal has no length.
            if metadata.is_file() {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(text.as_bytes())
        });
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_empty {
            // The run created this file but has no results for it, so the file is removed. An error
            // while removing it is ignored.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
