//! Checks that inside a crate, files import only from lower floors or their own floor, without
//! circles.
//!
//! The imports are read from the text: every path that starts with `crate`, `super`, `self` or a
//! module of the file. A name that a module re-exports counts as an import of the file that defines
//! it. Code for tests (`#[cfg(test)]`, files named `tests`) may import from anywhere.
#![cfg(not(any(loom, shuttle)))]

#[path = "floors/graph.rs"]
mod graph;
#[path = "floors/imports.rs"]
mod imports;

use graph::Graph;
use std::path::Path;

/// A crate and its floors.
struct House {
    name: &'static str,
    /// The names of files and folders in `src/`, from the lowest floor to the highest.
    floors: &'static [&'static [&'static str]],
}

const HOUSES: &[House] = &[
    House {
        name: "ext4",
        floors: &[
            &["attr"],
            &["crypt", "flags", "verity"],
            &["cache", "volume"],
            &["alloc", "quota"],
            &["options"],
            &["object"],
            &["data"],
            &["name"],
            &["ops"],
            &["mount"],
            &["lib"],
        ],
    },
    House {
        name: "plan",
        floors: &[
            &["error", "system"],
            &["extent", "dir", "xattr"],
            &["block_map", "cluster"],
            &["mapping"],
            &["fast_commit"],
            &["lib"],
        ],
    },
    House {
        name: "mkfs",
        floors: &[
            &["report"],
            &["options", "maps", "runs", "signature"],
            &["journal", "tree"],
            &["numbers"],
            &["layout"],
            &["resize"],
            &["write"],
            &["fitting"],
            &["filling"],
            &["lib"],
        ],
    },
    House {
        name: "fuse",
        floors: &[
            &["ids", "protocol"],
            &["transport"],
            &["service"],
            &["session"],
            &["mount"],
            &["lib"],
        ],
    },
    House {
        name: "raid5",
        floors: &[
            &["base"],
            &["members", "rows"],
            &["log"],
            &["array"],
            &["read", "write"],
            &["assembly", "upkeep"],
            &["lib"],
        ],
    },
    House {
        name: "offline",
        floors: &[
            &["error"],
            &["image"],
            &["commit", "inodes", "space"],
            &["tree"],
            &["mmp", "orphan_file", "quota"],
            &["grow", "journal", "move_blocks", "move_inodes", "trim", "undo"],
            &["mend", "recover", "shrink"],
            &["clone", "draft", "open", "tune"],
            &["lib"],
        ],
    },
    House {
        name: "lanes",
        floors: &[
            &["world"],
            &["rank", "sync", "xor"],
            &[
                "clock",
                "contention",
                "growing",
                "hash",
                "held",
                "pin_depth",
                "process",
                "schedules",
                "words",
            ],
            &["lane", "lines", "lock"],
            &["hold", "loan", "number_set", "versioned", "wait"],
            &["budget", "cell", "counter", "lane_arc", "limbo", "membership", "shared"],
            &["epoch", "heap"],
            &["map", "published"],
            &["lib"],
        ],
    },
    House {
        name: "device",
        floors: &[
            &["data", "device", "forward"],
            &["direct", "host_use", "image_lock", "nbd", "stdout"],
            &["partitions"],
            &["file", "ram"],
            &["overlay"],
            &["faulty", "gated", "recording"],
            &["replay"],
            &["lib"],
        ],
    },
    House {
        name: "journal",
        floors: &[
            &["config", "error", "in_place", "log_map", "statistics", "tid", "tracked"],
            &["flusher", "log_blocks", "limits", "lists", "ring", "store"],
            &["credits", "images", "log"],
            &["client", "committer", "recovery", "single"],
            &["journal"],
            &["commit", "fast_commit", "handle"],
            &["serve"],
            &["lib"],
        ],
    },
    House {
        name: "lanefs",
        floors: &[
            &["error", "metadata", "options", "source"],
            &["host", "mounted"],
            &["file"],
            &["filesystem"],
            &["attributes", "directory", "extents"],
            &["copy", "remove"],
            &["lib"],
        ],
    },
    House {
        name: "trace",
        floors: &[
            &["footprint", "memory", "registers", "symbols", "workers"],
            &["access", "bus", "conflict"],
            &["record"],
            &["lib"],
        ],
    },
    House {
        name: "check",
        floors: &[
            &["bytes", "field", "harm", "parallel", "place"],
            &["claims", "fault", "parents", "record", "states"],
            &["backup", "report", "volume"],
            &["groups", "mapping"],
            &["run"],
            &[
                "attributes",
                "bitmaps",
                "journal",
                "links",
                "named",
                "orphans",
                "quota",
                "special",
                "superblock",
            ],
            &["encryption"],
            &["blocks", "directories"],
            &["inodes"],
            &["table"],
            &["checker"],
            &["repair"],
            &["lib"],
        ],
    },
    House {
        name: "cli",
        floors: &[&["cli"], &["completion", "copy"], &["walk"], &["commands"], &["lib"]],
    },
    House {
        name: "build",
        floors: &[
            &["base64", "error", "entry", "owners"],
            &["progress", "short_path", "unescape", "verity", "view"],
            &["host_file", "tar", "tree", "unpack"],
            &["container", "pipeline", "table"],
            &["apply", "convert", "host"],
            &["source"],
            &["builder"],
            &["lib"],
        ],
    },
    House {
        name: "ondisk",
        floors: &[
            &["casefold", "features", "types"],
            &["checksum", "hash"],
            &["cause", "error"],
            &[
                "acl",
                "block_map",
                "dirent",
                "encryption",
                "extent",
                "jbd2",
                "md",
                "mmp",
                "orphan",
                "quota",
                "superblock",
                "verity",
                "xattr",
            ],
            &["group_desc", "htree", "inode"],
            &["bitmap"],
            &["lib"],
        ],
    },
    House {
        name: "suites",
        floors: &[
            &["home", "random"],
            &["conditions"],
            &["image", "kernel", "op", "library", "listing", "planted"],
            &["data", "limits"],
            &[
                "array",
                "both",
                "changes",
                "crash",
                "cuts",
                "faults",
                "fill",
                "fsx",
                "hostile",
                "large_dir",
                "model",
                "sequence",
                "together",
            ],
            &["differs", "fast_commits", "formats", "sample"],
            &["lib"],
        ],
    },
    House {
        name: "bench",
        floors: &[
            &[
                "cpu",
                "error",
                "latency",
                "machine",
                "older",
                "statistics",
                "stop",
                "threads",
                "tree",
            ],
            &["figures", "host", "library", "programs", "record", "target_tree"],
            &["workload", "mix", "raid", "report", "target"],
            &["efficiency", "html", "peers", "scale"],
            &["worker", "workloads"],
            &["race", "plan", "run", "seeds"],
            &["command"],
            &["lib"],
        ],
    },
];

fn violations(graph: &Graph, floors: &[&[&str]]) -> Vec<String> {
    let mut found = graph.circles();
    found.extend(graph.upward(floors));
    found
}

#[test]
fn imports_go_down_and_never_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut found = Vec::new();
    for House { name, floors } in HOUSES {
        let graph = Graph::read(&crates.join(name).join("src"));
        assert!(graph.arrows() > 10, "{name}: the sources are not where they were");
        found.extend(violations(&graph, floors).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_file_of_a_test_program_is_a_module_of_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let files = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.expect("a readable folder").path()).collect()
    };
    let programs = files(crates).into_iter().flat_map(|krate| files(&krate.join("tests")));
    let mut seen = 0;
    for program in programs.filter(|folder| folder.join("main.rs").exists()) {
        let root = std::fs::read_to_string(program.join("main.rs")).expect("a readable file");
        for file in files(&program).iter().filter(|file| file.extension() == Some("rs".as_ref())) {
            let name = file.file_stem().expect("a name").to_string_lossy();
            let declared = root.lines().any(|line| line == format!("mod {name};"));
            assert!(declared || name == "main", "{} is never compiled", file.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "the test programs are not where they were");
}

/// A crate without violations, whose floors are [`FLOORS`].
const SOUND: &[(&str, &str)] = &[
    ("lib.rs", "mod base;\nmod middle;\nmod top;\npub use top::Top;\n"),
    ("base.rs", "pub struct Base;\n"),
    ("middle/mod.rs", "mod one;\nmod other;\npub(crate) use one::One;\n"),
    ("middle/one.rs", "use super::other::Other;\npub(crate) struct One(crate::base::Base);\n"),
    ("middle/other.rs", "use crate::base::{self, Base as B};\npub(crate) struct Other;\n"),
    ("top.rs", "use crate::{base::Base, middle::One};\npub struct Top;\n"),
];
const FLOORS: &[&[&str]] = &[&["base"], &["middle"], &["top"], &["lib"]];

/// Returns the violations in [`SOUND`] after `text` was added to its file `path`.
fn planted(path: &str, text: &str) -> Vec<String> {
    let files = SOUND.iter().map(|(name, sound)| {
        let more = if *name == path { text } else { "" };
        ((*name).to_owned(), format!("{sound}{more}"))
    });
    violations(&Graph::of(files.collect()), FLOORS)
}

#[test]
fn a_planted_circle_is_seen() {
    assert_eq!(planted("lib.rs", ""), [""; 0]);
    let found = planted("middle/other.rs", "fn f(_: super::one::One) {}\n");
    assert_eq!(found, ["circle: middle/one.rs, middle/other.rs"]);
    // The name is imported through the module that re-exports it.
    let found = planted("middle/other.rs", "use crate::middle::One;\n");
    assert_eq!(found, ["circle: middle/one.rs, middle/other.rs"]);
    // A module may re-export a name of another folder by the name's full path. A file that imports
    // the name through this module does not count as importing the module.
    let sound: Vec<(String, String)> = [
        ("lib.rs", "mod base;\nmod format;\n"),
        ("base.rs", "pub struct Base;\n"),
        ("format.rs", "mod part;\npub use crate::base::Base;\npub use part::Part;\n"),
        ("format/part.rs", "use super::Base;\npub struct Part;\n"),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .to_vec();
    assert_eq!(Graph::of(sound).circles(), [""; 0]);
    // The root file imports all others, so no file may import from the root file.
    let found = planted("base.rs", "use crate::Top;\n");
    assert!(found.iter().any(|what| what.starts_with("circle: ")), "{found:?}");
}

#[test]
fn a_planted_import_from_above_is_seen() {
    for text in [
        "use crate::middle::One;\n",
        "use crate::{middle::{One}};\n",
        "fn f() -> crate::middle::One { loop {} }\n",
        "use super::middle::One;\n",
    ] {
        let found = planted("base.rs", text);
        let up = found.iter().find(|what| what.starts_with("up: "));
        assert_eq!(up.map(String::as_str), Some("up: base.rs imports middle/one.rs"), "{text}");
    }
}

#[test]
fn comments_strings_and_tests_import_nothing() {
    for text in [
        "// crate::middle::One\n",
        "/* crate::middle::One */\n",
        "const S: &str = \"crate::middle::One\";\n",
        "#[cfg(test)]\nmod tests {\n    use crate::middle::One;\n}\n",
        "#[cfg(all(test, not(any(loom, shuttle))))]\nuse crate::middle::One;\n",
        "#[cfg(test)]\nfn f() -> crate::middle::One { One::new() }\n",
    ] {
        assert_eq!(planted("base.rs", text), [""; 0], "{text}");
    }
    // Code that is not for tests is checked.
    assert_ne!(planted("base.rs", "#[cfg(not(test))]\nuse crate::middle::One;\n"), [""; 0]);
}

#[test]
fn a_module_in_braces_is_a_part_of_its_file() {
    assert_eq!(planted("base.rs", "mod inner {\n    use super::Base;\n}\n"), [""; 0]);
    for text in [
        "mod inner {\n    use super::super::middle::One;\n}\n",
        "mod inner {\n    use crate::middle::One;\n}\n",
        "mod inner {}\nuse super::middle::One;\n",
    ] {
        let found = planted("base.rs", text);
        assert!(found.contains(&"up: base.rs imports middle/one.rs".to_owned()), "{text}");
    }
}

#[test]
fn a_file_on_no_floor_is_seen() {
    let files = SOUND.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let files = files.chain([("attic.rs".to_owned(), "use crate::base::Base;\n".to_owned())]);
    let found = violations(&Graph::of(files.collect()), FLOORS);
    assert_eq!(found, ["on no floor: attic.rs"]);
}
