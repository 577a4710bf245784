//! The words after `lanefs find`: operands, options, and tests joined by operators.

use super::criterion::{Candidate, Criterion, Known, Which, changed};
use crate::cli::{Failure, ImagePath, Operand, Size};
use lanefs::Time;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// A tree of tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    Test(Criterion),
    Print(Output),
    Prune,
    Constant(bool),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

/// How a path is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Line,
    Nul,
}

/// The parsed words.
#[derive(Debug)]
pub struct Parsed {
    pub places: Vec<ImagePath>,
    pub options: Options,
    /// The files in images with whose times tests compare (`-newer`).
    pub references: Vec<ImagePath>,
    pub tree: Tree,
}

/// The options among the words.
#[derive(Debug)]
pub struct Options {
    /// The range of levels below an operand at which files are tested.
    pub depths: RangeInclusive<usize>,
    /// Whether a directory is tested after its entries.
    pub entries_first: bool,
    /// Whether the words contain `--json`.
    pub json: bool,
    /// The start of the file system in the image, if the words contain `--offset`.
    pub offset: Option<Size>,
}

/// What to do with a file: the outputs to print, and whether to skip its entries.
#[derive(Debug, Default)]
pub struct Verdict {
    pub outputs: Vec<Output>,
    pub prune: bool,
}

impl Parsed {
    /// Parses the words. Without `known`, the users, groups and files that tests name are not
    /// looked up: the tree is only checked.
    pub fn new(words: &[OsString], known: Option<Known<'_>>) -> Result<Parsed, Failure> {
        let is_expression = |word: &OsString| {
            let word = word.as_bytes();
            word.len() > 1 && word.starts_with(b"-") || matches!(word, b"!" | b"(" | b")")
        };
        let first = words.iter().position(is_expression).unwrap_or(words.len());
        let (places, rest) = words.split_at_checked(first).unwrap_or_default();
        if places.is_empty() {
            return Err(Failure::new("the image", "is missing: IMAGE[:/PATH] comes first"));
        }
        let options =
            Options { depths: 0..=usize::MAX, entries_first: false, json: false, offset: None };
        let references = Vec::new();
        let mut parser = Parser { words: rest, options, known, references, prints: false };
        let mut tree = match parser.words.is_empty() {
            true => Tree::Constant(true),
            false => parser.any()?,
        };
        if let Some(word) = parser.peek() {
            return Err(Failure::new(word, "no bracket or test before it"));
        }
        if !parser.prints {
            tree = Tree::All(vec![tree, Tree::Print(Output::Line)]);
        }
        let places = places.iter().cloned().map(ImagePath::from).collect();
        let Parser { options, references, .. } = parser;
        Ok(Parsed { places, options, references, tree })
    }
}

impl Tree {
    /// Returns what to do with a file.
    pub fn verdict(&self, file: &Candidate<'_, '_>) -> Result<Verdict, Failure> {
        let mut verdict = Verdict::default();
        self.evaluate(file, &mut verdict)?;
        Ok(verdict)
    }

    fn evaluate(&self, file: &Candidate<'_, '_>, verdict: &mut Verdict) -> Result<bool, Failure> {
        match self {
            Tree::Test(test) => return test.holds(file),
            Tree::Print(output) => verdict.outputs.push(*output),
            Tree::Prune => verdict.prune = true,
            Tree::Constant(value) => return Ok(*value),
            Tree::Not(below) => return Ok(!below.evaluate(file, verdict)?),
            Tree::All(below) => {
                return below
                    .iter()
                    .try_fold(true, |all, part| Ok(all && part.evaluate(file, verdict)?));
            }
            Tree::Any(below) => {
                return below
                    .iter()
                    .try_fold(false, |any, part| Ok(any || part.evaluate(file, verdict)?));
            }
        }
        Ok(true)
    }
}

struct Parser<'a> {
    words: &'a [OsString],
    options: Options,
    known: Option<Known<'a>>,
    references: Vec<ImagePath>,
    /// Whether there is an action that prints.
    prints: bool,
}

impl<'a> Parser<'a> {
    /// Returns the next word as text, for comparison with known words. A word that is not UTF-8
    /// becomes a text that equals no known word.
    fn peek(&self) -> Option<&'a str> {
        self.words.first().map(|word| word.to_str().unwrap_or("\u{fffd}"))
    }

    /// Returns the next word without its dashes.
    fn option(&self) -> Option<&'a str> {
        let word = self.peek()?;
        word.strip_prefix("--").or_else(|| word.strip_prefix('-'))
    }

    fn next(&mut self) -> Option<&'a OsString> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// Parses `A -o B ...`.
    fn any(&mut self) -> Result<Tree, Failure> {
        let mut parts = vec![self.all()?];
        while matches!(self.option(), Some("o" | "or")) {
            self.next();
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Tree::Any))
    }

    /// Parses `A B ...`, with or without `-a` in between.
    fn all(&mut self) -> Result<Tree, Failure> {
        let mut parts = vec![self.one()?];
        loop {
            match (self.peek(), self.option()) {
                (None | Some(")"), _) | (_, Some("o" | "or")) => {
                    return Ok(one_or(parts, Tree::All));
                }
                (_, Some("a" | "and")) => {
                    self.next();
                }
                _ => {}
            }
            parts.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Tree, Failure> {
        let shown = self.peek().unwrap_or("the expression");
        let option = self.option();
        self.next();
        match (shown, option) {
            ("!", _) | (_, Some("not")) => return Ok(Tree::Not(Box::new(self.one()?))),
            ("(", _) => {
                let inner = self.any()?;
                return match self.next() {
                    Some(word) if word == ")" => Ok(inner),
                    _ => Err(Failure::new("(", "its closing bracket is missing")),
                };
            }
            _ => {}
        }
        let Some(option) = option else {
            return Err(Failure::new(shown, "a test is expected here (--help lists them)"));
        };
        match option {
            "depth" => self.options.entries_first = true,
            "maxdepth" | "max-depth" => {
                let most = self.value(shown, "a number")?;
                self.options.depths = *self.options.depths.start()..=most;
            }
            "mindepth" | "min-depth" => {
                let least = self.value(shown, "a number")?;
                self.options.depths = least..=*self.options.depths.end();
            }
            "json" => self.options.json = true,
            "offset" => self.options.offset = Some(self.value(shown, "a number of bytes")?),
            _ => return self.test(shown, option),
        }
        Ok(Tree::Constant(true))
    }

    /// Parses an action or a test.
    fn test(&mut self, shown: &str, option: &str) -> Result<Tree, Failure> {
        Ok(match option {
            "print" | "print0" => {
                self.prints = true;
                Tree::Print(if option == "print" { Output::Line } else { Output::Nul })
            }
            "prune" => Tree::Prune,
            "true" => Tree::Constant(true),
            "false" => Tree::Constant(false),
            "help" => {
                return Err(Failure::new(shown, "comes before the image: lanefs find --help"));
            }
            "exec" | "execdir" | "ok" | "delete" | "ls" | "printf" | "fprint" | "regex" => {
                let why = "not supported: pipe -print0 to xargs -0, or use --json";
                return Err(Failure::new(shown, why));
            }
            "newer" => self.newer(shown, Which::Change)?,
            "anewer" => self.newer(shown, Which::Access)?,
            "cnewer" => self.newer(shown, Which::Inode)?,
            _ => {
                let known = self.known;
                match Criterion::parse(option, &mut || self.argument(shown), known)? {
                    Some(test) => Tree::Test(test),
                    None => return Err(Failure::new(shown, "no such test (--help lists them)")),
                }
            }
        })
    }

    /// Parses the file of a comparison of times.
    fn newer(&mut self, shown: &str, which: Which) -> Result<Tree, Failure> {
        let file = Operand::from(self.argument(shown)?.clone());
        let time = self.known.map_or(Ok(Time::default()), |known| changed(known.images, &file))?;
        self.references.extend(file.place().cloned());
        Ok(Tree::Test(Criterion::Newer(which, time)))
    }

    fn argument(&mut self, shown: &str) -> Result<&'a OsString, Failure> {
        self.next().ok_or_else(|| Failure::new(shown, "its argument is missing"))
    }

    fn value<T: FromStr>(&mut self, option: &str, what: &str) -> Result<T, Failure> {
        let value = self.next().and_then(|word| word.to_str()?.parse().ok());
        let missing = || Failure::new(option, format_args!("{what} is expected after it"));
        value.ok_or_else(missing)
    }
}

fn one_or(mut parts: Vec<Tree>, several: fn(Vec<Tree>) -> Tree) -> Tree {
    match parts.pop() {
        Some(one) if parts.is_empty() => one,
        Some(last) => {
            parts.push(last);
            several(parts)
        }
        None => Tree::Constant(true),
    }
}

#[cfg(test)]
mod tests;
