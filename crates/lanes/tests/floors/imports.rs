//! The paths that a source file imports from its own crate.

/// Returns `text` without comments, string contents and code for tests.
pub fn production(text: &str) -> String {
    without_tests(&code(text))
}

/// Returns `text` without comments and string contents.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"', '\'', 'r']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let in_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let (skipped, kept) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), "")
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), "")
        } else if let Some(body) = rest.strip_prefix('"') {
            (string(body, '"') + 2, "\"\"")
        } else if !in_word && (rest.starts_with("r\"") || rest.starts_with("r#\"")) {
            let quotes = &rest[1..rest.find('"').map_or(1, |quote| quote + 1)];
            let end: String = quotes.chars().rev().collect();
            let body = 1 + quotes.len();
            (rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()), "\"\"")
        } else if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') {
            // This is a character literal. In all other cases the quote starts a lifetime.
            (string(&rest[1..], '\'') + 2, "' '")
        } else {
            (1, &rest[..1])
        };
        code.push_str(kept);
        rest = rest.get(skipped..).unwrap_or_default();
    }
    code + rest
}

/// Returns the length of a string up to its end mark, in bytes.
fn string(text: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == end && !escaped {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Returns `code` without the items that are compiled for tests only.
fn without_tests(code: &str) -> String {
    let mut left = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let (before, attribute) = rest.split_at(at);
        left.push_str(before);
        let end = attribute.find(")]").map_or(attribute.len(), |end| end + 2);
        let condition = &attribute[6..end];
        let (item, after) = attribute[end..].split_at(item(&attribute[end..]));
        if !condition.starts_with("test") && !condition.starts_with("all(test") {
            left.push_str(&without_tests(item));
        }
        rest = after;
    }
    left + rest
}

/// Returns the length in bytes of the item at the start of `code`: up to its `;`, `,` or closing
/// brace.
fn item(code: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => {
                depth -= 1;
                let is_use = code.trim_start().starts_with("use ") || code.contains("pub use ");
                if c == '}' && depth == 0 && !is_use {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// A path, and the number of inline modules (`mod name { .. }`) around it.
pub struct Import {
    pub path: Vec<String>,
    pub depth: usize,
}

/// Returns all paths in `code` that start with one of `roots`. Each path is a list of words, and
/// groups are expanded.
pub fn paths(code: &str, roots: &[&str]) -> Vec<Import> {
    let mut all = Vec::new();
    for root in roots {
        for (at, _) in code.match_indices(&format!("{root}::")) {
            let before = code[..at].chars().next_back();
            // A path that starts with `$crate` belongs to a macro. It is resolved where the macro
            // is used, so it is no import of this file.
            if !before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                let mut found = Vec::new();
                expand(&mut Vec::new(), &code[at..], &mut found);
                let depth = modules_around(&code[..at]);
                all.extend(found.into_iter().map(|path| Import { path, depth }));
            }
        }
    }
    all
}

/// Returns the number of modules that `before` opens and does not close.
fn modules_around(before: &str) -> usize {
    let mut open = Vec::new();
    for (at, c) in before.char_indices() {
        match c {
            '{' => open.push(opens_module(&before[..at])),
            '}' => drop(open.pop()),
            _ => {}
        }
    }
    open.into_iter().filter(|is_module| *is_module).count()
}

/// Returns whether the text before a brace ends with `mod NAME`.
fn opens_module(before: &str) -> bool {
    before.split_whitespace().rev().nth(1) == Some("mod")
}

/// Reads a path, or a group of paths in braces, from the start of `code`. Adds each path, with
/// `prefix` before it, to `all`. Returns the rest of `code`.
fn expand<'c>(prefix: &mut Vec<String>, code: &'c str, all: &mut Vec<Vec<String>>) -> &'c str {
    let code = code.trim_start();
    if let Some(mut group) = code.strip_prefix('{') {
        loop {
            group = group.trim_start();
            if let Some(rest) = group.strip_prefix('}') {
                return rest;
            }
            if group.is_empty() {
                return group;
            }
            group = expand(prefix, group, all);
            // Skips an alias and the separator after it.
            let end = group.find([',', '}']).unwrap_or(group.len());
            group = group[end..].strip_prefix(',').unwrap_or(&group[end..]);
        }
    }
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    let (word, rest) = code.split_at(end);
    prefix.push(word.to_owned());
    let rest = match rest.strip_prefix("::") {
        Some(more) if more.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{') => {
            expand(prefix, more, all)
        }
        _ => {
            all.push(prefix.clone());
            rest
        }
    };
    prefix.pop();
    rest
}

/// Returns the names that `code` re-exports, each with its path: `pub use a::{B, c::D};`.
pub fn exports(code: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
        if line.starts_with("pub") {
            expand(&mut Vec::new(), &code[at + 4..], &mut all);
        }
    }
    all
}
