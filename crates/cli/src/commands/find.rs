//! `lanefs find`

mod criterion;
mod expression;

use crate::cli::{
    FileArguments, ImagePath, Images, Intent, Report, Screen, UserNames, file_facts, long_help,
};
use crate::copy::{ImageNode, ImageTree};
use crate::walk::{Order, Visit, Walk};
use criterion::{Candidate, Known};
use expression::{Options, Output, Parsed, Tree};
use lanefs::{FileType, Follow, Time};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Finds files in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(override_usage = "lanefs find [OPTIONS] IMAGE[:/PATH]... [EXPRESSION]")]
#[command(after_help = "\
The expression is that of find(1). Tests may have one dash or two. N is a number, +N more, -N less.

  -name GLOB  -iname GLOB         the name matches; -iname ignores case
  -path GLOB  -ipath GLOB         the path in the image matches
  -lname GLOB                     a symbolic link whose target matches
  -type f|d|l|b|c|p|s             the type; several with commas between them
  -size N[cwbkMG]                 the size, rounded up to units: bytes, 2, 512 (default), 1K, 1M, 1G
  -empty                          a file of size 0 or a directory without entries
  -perm MODE|-MODE|/MODE          the permissions: all the same, all of these set, any of these set
  -user NAME  -group NAME         the owner, by name or number;  -uid N  -gid N
  -links N  -inum N               number of names; inode number
  -newer FILE                     changed after this file: IMAGE:/PATH, or a path of the host;
                                  -anewer: accessed after FILE was changed; -cnewer: the inode
                                  changed after FILE was changed
  -newermt TIME                   changed after a time, like '2024-05-01 12:30' or @1714559400
  -mtime N  -mmin N               changed N days or N minutes ago; -atime, -amin: accessed;
                                  -ctime, -cmin: its inode changed
  -xattr GLOB                     has an extended attribute whose name matches
  -true  -false

  -maxdepth N  -mindepth N        levels below the operand;  -depth  entries before their directory
  -prune                          do not enter this directory
  -print  -print0                 print the path, which is the default; -print0 ends it with a NUL
  ( A )   ! A   A B   A -o B      brackets, not, and, or (also -not, -a, -and, -or)

Exit codes: 0 success (also if nothing was found), 1 some files could not be read, 2 wrong usage.

Examples:
  lanefs find disk.img:/etc -name '*.conf' -newer disk.img:/etc/fstab
  lanefs find disk.img -type f -perm /6000 -user root
  lanefs find disk.img -path '/proc/*' -prune -o -size +10M -print0 | xargs -r0 lanefs rm
  lanefs find disk.img --type f --json | jq -r 'select(.links > 1) | .path'")]
pub struct Arguments {
    /// Directories or files, as IMAGE[:/PATH], and an expression
    #[arg(required = true, allow_hyphen_values = true, value_name = "IMAGE[:/PATH]")]
    words: Vec<OsString>,
    /// Print a JSON object for each file, on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs find`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let parsed = Report::new("find").given(Parsed::new(&arguments.words, None));
    let Some(mut parsed) = parsed else { return ExitCode::from(2) };
    parsed.options.json |= arguments.json;
    let mut image = arguments.image.clone();
    image.image.offset = parsed.options.offset.unwrap_or(image.image.offset);
    Report::run("find", |report| {
        let (wanted, now) = (parsed.places.iter().chain(&parsed.references), Time::now());
        let images = Images::open(&image, wanted.map(|place| place.wanted(Intent::Read)))?;
        let mut out = Screen::new();
        let printed = images.each(&parsed.places, report, |fs, place| {
            let tree = ImageTree::new(fs, &place.image);
            let top = tree.find(&place.path, Follow::Nothing)?;
            let known = Known { images: &images, names: &UserNames::of(fs) };
            let expression = Parsed::new(&arguments.words, Some(known))?.tree;
            let options = &parsed.options;
            Ok(Search { tree: &tree, place, expression, options, now, report }
                .run(top, &mut out)?)
        });
        Ok(printed.and_then(|()| out.flush())?)
    })
}

/// A search below one operand.
struct Search<'a> {
    tree: &'a ImageTree<'a>,
    place: &'a ImagePath,
    expression: Tree,
    options: &'a Options,
    now: Time,
    report: &'a Report,
}

impl Search<'_> {
    fn run(&self, top: ImageNode, out: &mut dyn Write) -> io::Result<()> {
        let Options { depths, entries_first, .. } = self.options;
        let mut walk = Walk::new(self.tree, top, Order::Stored);
        while let Some(step) = walk.step() {
            let Some(visit) = self.report.given(step) else { continue };
            let entry = match visit {
                Visit::File(entry) => {
                    let is_dir = entry.meta.file_type == FileType::Directory;
                    if is_dir && entry.depth >= *depths.end() {
                        walk.prune();
                    }
                    if is_dir && *entries_first {
                        continue;
                    }
                    entry
                }
                Visit::Left(_) if !entries_first => continue,
                Visit::Left(entry) => entry,
            };
            if !depths.contains(&entry.depth) {
                continue;
            }
            let (tree, now, place) = (self.tree, self.now, &self.place.below(walk.path()));
            let candidate = Candidate { tree, entry: &entry, place, now };
            let verdict = self.report.given(self.expression.verdict(&candidate));
            let Some(verdict) = verdict else { continue };
            if verdict.prune && !entries_first {
                walk.prune();
            }
            for output in verdict.outputs {
                self.print(&candidate, output, out)?;
            }
        }
        Ok(())
    }

    fn print(
        &self,
        found: &Candidate<'_, '_>,
        output: Output,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if !self.options.json {
            out.write_all(&found.place.to_bytes())?;
            return out.write_all(if output == Output::Nul { b"\0" } else { b"\n" });
        }
        let ImagePath { image, path } = found.place;
        writeln!(out, "{}", file_facts(image, path, &found.entry.node.attr()))
    }
}
