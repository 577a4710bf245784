//! The manual pages and completions of all commands.

use crate::cli::{Failure, Report};
use crate::completion::{Shell, write_script};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The files that a page names: the subcommand, the file, what it is.
const FILES: &[(&str, &str, &str)] = &[
    (
        "lanefs",
        "/etc/passwd, /etc/group",
        "Names of users and groups. The static binary reads only these files, and no other database (nsswitch.conf(5)).",
    ),
    ("mount", "/dev/fuse", "The kernel's FUSE device."),
    ("mount", "fusermount3", "Mounts for users other than root (package fuse3)."),
    (
        "mount",
        "/sbin/mount.lanefs, /sbin/mount.fuse.lanefs",
        "Links to lanefs, by which mount(8) and fstab(5) mount the types lanefs and fuse.lanefs.",
    ),
    ("mkfs", "/sbin/mkfs.lanefs", "A link to lanefs for mkfs(8)."),
    (
        "fsck",
        "/sbin/fsck.lanefs, /sbin/fsck.fuse.lanefs",
        "Links to lanefs, by which fsck(8) checks the types lanefs and fuse.lanefs.",
    ),
];

/// Writes the man pages of all commands into a folder
#[derive(Debug, clap::Args)]
#[command(hide = true)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage.

Example:
  lanefs manual /usr/local/share/man/man1")]
pub struct Manual {
    /// The folder, which must exist
    folder: PathBuf,
}

/// Runs `lanefs manual`.
pub fn manual(arguments: &Manual) -> ExitCode {
    let mut command = super::description();
    command.build();
    Report::run("manual", |_| Ok(write_pages(&command, "lanefs", &arguments.folder)?))
}

/// Writes the page `name` of a command, and those of its subcommands.
fn write_pages(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    let written = page(command, name).and_then(|page| std::fs::write(&path, page));
    written.map_err(|error| Failure::host(path.display(), &error))?;
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in shown.filter(|sub| sub.get_name() != "help") {
        write_pages(sub, &format!("{name}-{}", sub.get_name()), folder)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let version = format!("lanefs {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(name.to_uppercase())
        .section("1")
        .source(version)
        .manual("Lanefs");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    let mut roff = Roff::new();
    if command.has_subcommands() {
        commands(&mut roff, command, name);
    }
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for part in ["NOTES", "EXIT STATUS", "EXAMPLES"] {
        section(&mut roff, part, &notes);
    }
    files(&mut roff, name.strip_prefix("lanefs-").unwrap_or(name));
    see_also(&mut roff, name);
    roff.to_writer(&mut page)?;
    Ok(page)
}

fn commands(roff: &mut Roff, command: &Command, name: &str) {
    roff.control("SH", ["COMMANDS"]);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        if sub.get_name() != "help" {
            roff.control("TP", []);
            roff.text([roman(format!("{name}-{}(1)", sub.get_name()))]);
            roff.text([roman(sub.get_about().map(ToString::to_string).unwrap_or_default())]);
        }
    }
}

/// Writes those paragraphs of a command's notes that belong to the section `part`.
fn section(roff: &mut Roff, part: &str, notes: &str) {
    let belongs = |paragraph: &&str| match paragraph {
        text if text.starts_with("Exit codes") => part == "EXIT STATUS",
        text if text.starts_with("Example") => part == "EXAMPLES",
        _ => part == "NOTES",
    };
    let mut paragraphs = notes.split("\n\n").map(|text| text.trim_matches('\n'));
    let mut is_first = true;
    for paragraph in paragraphs.by_ref().filter(|text| !text.is_empty()).filter(belongs) {
        match is_first {
            true => roff.control("SH", [part]),
            false => roff.control("PP", []),
        };
        is_first = false;
        lines(roff, paragraph);
    }
}

/// Writes the lines of a paragraph. Indented lines, such as examples and tables, stay as they are.
fn lines(roff: &mut Roff, paragraph: &str) {
    let mut is_literal = false;
    for line in paragraph.lines().filter(|line| !matches!(*line, "Example:" | "Examples:")) {
        let wants_literal = line.starts_with(' ');
        if wants_literal != is_literal {
            roff.control(if wants_literal { "EX" } else { "EE" }, []);
            is_literal = wants_literal;
        }
        roff.text([roman(line)]);
    }
    if is_literal {
        roff.control("EE", []);
    }
}

fn files(roff: &mut Roff, subcommand: &str) {
    let mut named = FILES.iter().filter(|(of, ..)| *of == subcommand).peekable();
    if named.peek().is_some() {
        roff.control("SH", ["FILES"]);
    }
    for (_, file, what) in named {
        roff.control("TP", []);
        roff.text([roman(*file)]);
        roff.text([roman(*what)]);
    }
}

fn see_also(roff: &mut Roff, name: &str) {
    roff.control("SH", ["SEE ALSO"]);
    match name.rsplit_once('-') {
        Some((above, _)) => roff.text([roman(format!("{above}(1), ext4(5)"))]),
        None => roff.text([roman("ext4(5), mount(8), fsck(8), fuse(4)")]),
    };
}

/// Prints the script that completes lanefs in a shell, also paths inside images
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Packages and make install put the scripts where the shells look for them.

Exit codes: 0 success, 1 failure, 2 wrong usage.

Examples:
  lanefs completions bash > ~/.local/share/bash-completion/completions/lanefs
  lanefs completions zsh > ~/.zfunc/_lanefs     # a folder in $fpath
  lanefs completions fish > ~/.config/fish/completions/lanefs.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Runs `lanefs completions`.
pub fn completions(arguments: &Completions) -> ExitCode {
    Report::run("completions", |_| Ok(write_script(arguments.shell, &mut io::stdout().lock())?))
}
