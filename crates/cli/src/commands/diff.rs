//! `lanefs diff`

mod aspect;
mod changes;
mod pair;

use crate::cli::{
    Failure, FileArguments, ImagePath, Images, Intent, Operand, Report, Screen, keep_bytes,
};
use crate::copy::{HostTree, ImageTree, Trail, Tree};
use aspect::{Aspect, Aspects, Change};
use changes::Changes;
use lanefs::Follow;
use pair::{Pair, Side};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Compares the trees of two images, or of an image and a directory of the host
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Compares types, contents, link targets, device numbers, modes, owners, hard links and extended
attributes, including access control lists; with --times also times. An empty /lost+found of an
image is ignored. Each line of the output has a sign and a path:

  - PATH           is only in A
  + PATH           is only in B
  ! PATH: WHAT     differs: what, with the values of A and B

Exit codes: 0 the trees are equal, 1 they differ, 2 something could not be compared, or wrong
usage.

Examples:
  lanefs diff base.img vm.img
  lanefs diff --ignore owner,xattrs disk.img:/etc ./etc
  lanefs diff --times --json a.img b.img | jq -r .path")]
pub struct Arguments {
    /// The first tree: IMAGE[:/PATH], or a directory of the host
    #[arg(value_name = "A")]
    a: OsString,
    /// The second tree
    #[arg(value_name = "B")]
    b: OsString,
    /// Compare the times of the last modification too
    #[arg(long)]
    times: bool,
    /// Do not compare these properties
    #[arg(long, value_delimiter = ',', value_name = "WHAT,...")]
    ignore: Vec<Aspect>,
    /// Print nothing; only set the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Print a JSON object for each difference, on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Equal,
    Different,
}

/// Runs `lanefs diff`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("diff");
    let found = report.given(compare(arguments, &report));
    match (found, report.has_failed()) {
        (Some(Found::Equal), false) => ExitCode::SUCCESS,
        (Some(Found::Different), false) => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

/// Converts an operand, which names a directory of the host, or a file or directory in an image.
fn operand(text: &OsString) -> Operand {
    match Operand::from(text.clone()) {
        Operand::Host(path) if !path.is_dir() => Operand::Image(ImagePath::from(text.clone())),
        operand => operand,
    }
}

fn compare(arguments: &Arguments, report: &Report) -> Result<Found, Failure> {
    let operands = [operand(&arguments.a), operand(&arguments.b)];
    let places = operands.iter().filter_map(Operand::place);
    let images = Images::open(&arguments.image, places.map(|place| place.wanted(Intent::Read)))?;
    let tree =
        |place: &ImagePath| images.get(&place.image).map(|fs| ImageTree::new(fs, &place.image));
    let [a, b] = &operands;
    match (a, b) {
        (Operand::Image(a), Operand::Image(b)) => {
            let (first, second) = (tree(a)?, tree(b)?);
            let tops = (first.find(&a.path, Follow::Links)?, second.find(&b.path, Follow::Links)?);
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Image(a), Operand::Host(b)) => {
            let (first, second) = (tree(a)?, HostTree::beside(&[]));
            let tops = (first.find(&a.path, Follow::Links)?, Trail::new(b));
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Host(a), Operand::Image(b)) => {
            let (first, second) = (HostTree::beside(&[]), tree(b)?);
            let tops = (Trail::new(a), second.find(&b.path, Follow::Links)?);
            between(arguments, report, &first, &second, tops)
        }
        (Operand::Standard, _) | (_, Operand::Standard) => {
            Err(Failure::new("-", "standard input is not a tree"))
        }
        (Operand::Host(a), Operand::Host(_)) => {
            Err(Failure::new(a.display(), "neither A nor B is an image: use diff(1)"))
        }
    }
}

fn between<A: Tree, B: Tree>(
    arguments: &Arguments,
    report: &Report,
    a: &A,
    b: &B,
    tops: (A::Node, B::Node),
) -> Result<Found, Failure> {
    let mut output = Output { arguments, out: Screen::new(), found: Found::Equal };
    let mut pair = Pair::new(a, b, tops);
    let mut changes =
        Changes::new(a, b, Aspects { ignored: arguments.ignore.clone(), times: arguments.times });
    let done = (|| {
        while let Some(step) = pair.step() {
            let side = match step {
                Ok(side) => side,
                Err(failure) => {
                    report.fail(failure);
                    continue;
                }
            };
            let path = pair.path(&side).to_vec();
            match side {
                Side::First(_) => output.tell("-", &path, "", [("only_in", json!("a"))])?,
                Side::Second(_) => output.tell("+", &path, "", [("only_in", json!("b"))])?,
                Side::Both(first, second) => match changes.between(&first, &second) {
                    Ok(changes) if changes.is_empty() => {}
                    Ok(changes) => output.changed(&path, changes)?,
                    Err(failure) => report.fail(failure),
                },
            }
            if arguments.quiet && output.found == Found::Different {
                break;
            }
        }
        output.out.flush()
    })();
    report.printed(done);
    Ok(output.found)
}

struct Output<'a, W: Write> {
    arguments: &'a Arguments,
    out: W,
    found: Found,
}

impl<W: Write> Output<'_, W> {
    /// Prints a difference: its sign, the path, and what differs as text or as JSON.
    fn tell<'f>(
        &mut self,
        sign: &str,
        path: &[u8],
        text: &str,
        facts: impl IntoIterator<Item = (&'f str, Value)>,
    ) -> io::Result<()> {
        self.found = Found::Different;
        if self.arguments.quiet {
            return Ok(());
        }
        if self.arguments.json {
            let mut line = described(path);
            facts.into_iter().for_each(|(name, value)| line[name] = value);
            return writeln!(self.out, "{line}");
        }
        write!(self.out, "{sign} /")?;
        self.out.write_all(path)?;
        writeln!(self.out, "{text}")
    }

    fn changed(&mut self, path: &[u8], changes: Vec<Change>) -> io::Result<()> {
        let texts: Vec<&str> = changes.iter().map(|change| change.text.as_str()).collect();
        let text = format!(": {}", texts.join(", "));
        self.tell("!", path, &text, changes.into_iter().map(|change| (change.what, change.values)))
    }
}

/// Returns the path as JSON.
fn described(path: &[u8]) -> Value {
    let path = [b"/", path].concat();
    let mut line = json!({ "path": String::from_utf8_lossy(&path) });
    keep_bytes(&mut line, "path", &path);
    line
}
