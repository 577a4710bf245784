//! The files of a crate, and their imports from each other.

use super::imports::{Import, exports, paths, production};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path in its crate; the path of the crate's root is empty.
type Module = Vec<String>;

struct File {
    /// The path in `src/`.
    name: String,
    module: Module,
    code: String,
}

/// Files by number, and the imports between them.
pub struct Graph {
    files: Vec<File>,
    arrows: BTreeSet<(usize, usize)>,
}

impl Graph {
    /// Reads the sources in a folder `src`.
    pub fn read(src: &Path) -> Graph {
        let mut files = Vec::new();
        collect(src, src, &mut files);
        Graph::of(files)
    }

    /// Creates the graph of files with these names and texts.
    pub fn of(texts: Vec<(String, String)>) -> Graph {
        let is_test = |name: &str| name.split('/').any(|part| part.starts_with("tests"));
        let texts = texts.into_iter().filter(|(name, _)| !is_test(name));
        let files: Vec<File> = texts
            .map(|(name, text)| File { module: module(&name), code: production(&text), name })
            .collect();
        let modules = files.iter().enumerate().map(|(n, file)| (file.module.clone(), n)).collect();
        let mut arrows = BTreeSet::new();
        for (n, file) in files.iter().enumerate() {
            let imported = imports(file).into_iter().map(|path| resolve(&files, &modules, &path));
            arrows.extend(imported.filter(|to| *to != n).map(|to| (n, to)));
        }
        Graph { files, arrows }
    }

    pub fn arrows(&self) -> usize {
        self.arrows.len()
    }

    /// Returns files that import from each other, directly or through other files.
    pub fn circles(&self) -> Vec<String> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|n| self.reach(n)).collect();
        let mut circles = BTreeSet::new();
        for n in 0..self.files.len() {
            let circle: Vec<&str> = reach[n]
                .iter()
                .filter(|to| reach[n].contains(&n) && reach[**to].contains(&n))
                .map(|to| self.files[*to].name.as_str())
                .collect();
            if !circle.is_empty() {
                circles.insert(format!("circle: {}", circle.join(", ")));
            }
        }
        circles.into_iter().collect()
    }

    fn reach(&self, from: usize) -> BTreeSet<usize> {
        let (mut found, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            for (_, to) in self.arrows.range((at, 0)..(at + 1, 0)) {
                if found.insert(*to) {
                    next.push(*to);
                }
            }
        }
        found
    }

    /// Returns files on no floor, floor entries without a file, and imports from a higher floor.
    pub fn upward(&self, floors: &[&[&str]]) -> Vec<String> {
        let top = |file: &File| file.module.first().cloned().unwrap_or("lib".to_owned());
        let floor = |file: &File| {
            let top = top(file);
            floors.iter().position(|floor| floor.contains(&top.as_str()))
        };
        let tops: BTreeSet<String> = self.files.iter().map(top).collect();
        let vacant =
            floors.iter().flat_map(|floor| floor.iter()).filter(|name| !tops.contains(**name));
        let lost = self.files.iter().filter(|file| floor(file).is_none());
        let mut found: Vec<String> =
            lost.map(|file| format!("on no floor: {}", file.name)).collect();
        found.extend(vacant.map(|name| format!("no such file: {name}")));
        for (from, to) in &self.arrows {
            let (from, to) = (&self.files[*from], &self.files[*to]);
            if floor(from) < floor(to) && floor(from).is_some() {
                found.push(format!("up: {} imports {}", from.name, to.name));
            }
        }
        found
    }
}

fn collect(src: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            // `src/bin` is left out, because each file in it is a program of its own.
            if path.strip_prefix(src) != Ok(Path::new("bin")) {
                collect(src, &path, into);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let name = path.strip_prefix(src).expect("below it").to_str().expect("a plain name");
            into.push((name.to_owned(), fs::read_to_string(&path).expect("text")));
        }
    }
}

/// `a/b.rs` and `a/b/mod.rs` are module `a::b`; `lib.rs` is the root.
fn module(name: &str) -> Module {
    let name = name.trim_end_matches(".rs");
    let mut module: Module = name.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Returns the full paths that a file imports.
fn imports(file: &File) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let children = children(&file.code);
    let children: Vec<&str> = children.iter().map(String::as_str).collect();
    for Import { path, depth } in paths(&file.code, &["crate", "super", "self"])
        .into_iter()
        .chain(paths(&file.code, &children))
    {
        // Each leading `super` of a path leads out of one of the inline modules (`mod name { .. }`)
        // around the path. A path with fewer leading `super`s than inline modules around it refers
        // to this file.
        let up = path.iter().take_while(|word| *word == "super").count();
        if path[0] != "crate" && up < depth {
            continue;
        }
        let path = if path[0] == "super" { &path[depth..] } else { &path[..] };
        let Some(first) = path.first() else { continue };
        let mut module = match first.as_str() {
            "crate" => Module::new(),
            _ => file.module.clone(),
        };
        for (n, word) in path.iter().enumerate() {
            match word.as_str() {
                "crate" => {}
                "self" if n == 0 || n + 1 == path.len() => {}
                "super" => drop(module.pop()),
                word => module.push(word.to_owned()),
            }
        }
        found.insert(module);
    }
    found
}

/// Returns the modules that a file declares.
fn children(code: &str) -> Vec<String> {
    let declared = code.split(';').filter_map(|item| item.rsplit_once("mod "));
    let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    declared.map(|(_, name)| name.trim()).filter(is_name).map(str::to_owned).collect()
}

/// Returns the file to which a path refers. This is the file of the longest module path at the
/// start of `path`, or the file from which that module re-exports the next word. The re-exports of
/// the crate's root, `lib.rs`, are for other crates. Inside the crate, the root counts as one more
/// file, which imports all files.
fn resolve(files: &[File], modules: &BTreeMap<Module, usize>, path: &[String]) -> usize {
    let longest = (0..=path.len()).rev().find_map(|len| Some((len, *modules.get(&path[..len])?)));
    let Some((len, file)) = longest else { return 0 };
    let exported = path.get(len).filter(|_| len > 0).and_then(|name| {
        exports(&files[file].code).into_iter().find(|path| path.last() == Some(name))
    });
    match exported {
        Some(exported) => {
            let inner = exported.iter().filter(|word| *word != "self" && *word != "crate");
            let from: &[String] = if exported[0] == "crate" { &[] } else { &files[file].module };
            let whole: Module = from.iter().chain(inner).cloned().collect();
            if whole == path { file } else { resolve(files, modules, &whole) }
        }
        None => file,
    }
}
