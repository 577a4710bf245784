//! A report as one HTML file: tables and plots, nothing to be fetched.

mod plot;

use crate::report::{factor, short};
use crate::{Machine, Measured, Outcome};
use plot::{Plot, Series};
use std::fmt::Write;
use std::time::Duration;

/// Results that belong together, under one heading.
#[derive(Debug)]
pub struct Chapter<'a> {
    /// The heading.
    pub title: String,
    /// One for each count of threads.
    pub measured: Vec<&'a Measured>,
}

/// Chapters by workload, in the order in which they were measured.
pub fn chapters(all: &[Measured]) -> Vec<Chapter<'_>> {
    let mut chapters: Vec<Chapter<'_>> = Vec::new();
    for measured in all {
        let title = measured.workload.name();
        match chapters.iter_mut().find(|chapter| chapter.title == title) {
            Some(chapter) => chapter.measured.push(measured),
            None => chapters.push(Chapter { title: title.into(), measured: vec![measured] }),
        }
    }
    chapters
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em;\
color:#222;background:#fff}table{border-collapse:collapse;margin:.6em 0}th,td{padding:.15em .7em;\
text-align:right;border-bottom:1px solid #ddd}th:nth-child(2),td:nth-child(2){text-align:left}\
.plots{display:flex;flex-wrap:wrap;gap:1em}svg{background:#fafafa;border:1px solid #e5e5e5}\
svg text{font:11px system-ui,sans-serif;fill:#444}code{background:#f2f2f2;padding:0 .3em}\
small{color:#666}";

/// The page. `command` is what was run.
pub fn html(command: &str, before: &Machine, after: &Machine, chapters: &[Chapter<'_>]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Lanefs benchmark</title><style>{STYLE}</style></head><body>\n\
         <h1>Lanefs benchmark</h1>\n<p><code>{}</code></p>\n<p>{}<br><small>at the end: {}</small></p>\n",
        escaped(command),
        escaped(&before.to_string()),
        escaped(&after.to_string()),
    );
    page += "<p>Targets took turns in short slices. Rates are medians of the slices, with the smallest and the \
             largest; ratios are taken slice by slice against the first target; latencies are of a sample of \
             the operations; CPU time is that of the process, the server and the kernel's threads.</p>\n";
    for chapter in chapters {
        chapter_to(&mut page, chapter);
    }
    page += "</body></html>\n";
    page
}

fn chapter_to(page: &mut String, chapter: &Chapter<'_>) {
    let Some(first) = chapter.measured.first() else { return };
    let unit = first.workload.unit();
    // Writing to a string does not fail.
    let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"plots\">", escaped(&chapter.title));
    let names: Vec<&str> = first.outcomes.iter().map(|(name, _)| name.as_str()).collect();
    *page += &throughput(chapter, &names, unit).svg();
    *page += &latency(chapter, &names).svg();
    *page += "</div>\n";
    table_to(page, chapter, unit);
}

/// Throughput over threads.
fn throughput(chapter: &Chapter<'_>, names: &[&str], unit: &str) -> Plot {
    let series = names.iter().enumerate().map(|(n, name)| {
        let points = chapter.measured.iter().filter_map(|measured| {
            let rate = measured.outcomes.get(n)?.1.rate()?;
            Some((f64::from(measured.threads), rate.median, Some((rate.min, rate.max))))
        });
        Series { name: (*name).into(), points: points.collect() }
    });
    let series = series.collect();
    Plot { title: format!("{unit} over threads"), across: "threads".into(), series }
}

/// Percentiles of latency, with the most threads that were measured.
fn latency(chapter: &Chapter<'_>, names: &[&str]) -> Plot {
    let most = chapter.measured.iter().max_by_key(|measured| measured.threads);
    let threads = most.map_or(0, |measured| measured.threads);
    let series = names.iter().enumerate().map(|(n, name)| {
        let figures = most.and_then(|measured| measured.outcomes.get(n)?.1.figures());
        // Nines across: 90 % is 1, 99 % is 2.
        let points = [0.5, 0.9, 0.99, 0.999].into_iter().filter_map(|share: f64| {
            let late = figures?.latencies.percentile(share)?;
            Some((-(1.0 - share).log10(), late.as_secs_f64() * 1e6, None))
        });
        Series { name: (*name).into(), points: points.collect() }
    });
    let series = series.collect();
    let title = format!("latency in us with {threads} threads, by nines (1: 90 %, 2: 99 %)");
    Plot { title, across: "nines".into(), series }
}

fn table_to(page: &mut String, chapter: &Chapter<'_>, unit: &str) {
    let _ = writeln!(
        page,
        "<table><tr><th>threads<th>target<th>{unit}<th>slices<th>times the first<th>us CPU\
         <th>loop device<th>50 % us<th>99 % us<th>99.9 % us<th>lock waits</tr>"
    );
    for measured in &chapter.measured {
        let first = measured.outcomes.first().map(|(_, outcome)| outcome);
        for (name, outcome) in &measured.outcomes {
            let _ = write!(page, "<tr><td>{}<td>{}", measured.threads, escaped(name));
            row_to(page, outcome, first);
            *page += "</tr>\n";
        }
    }
    *page += "</table>\n";
}

fn row_to(page: &mut String, outcome: &Outcome, first: Option<&Outcome>) {
    let (figures, rate) = match (outcome, outcome.rate()) {
        (Outcome::Ran(figures), Some(rate)) => (figures, rate),
        (Outcome::Failed(why), _) => {
            let _ = write!(page, "<td colspan=\"9\">failed: {}", escaped(why));
            return;
        }
        _ => {
            *page += "<td colspan=\"9\">-";
            return;
        }
    };
    let micros = |time: Duration| short(time.as_nanos() as f64 / 1000.0);
    let ratio = first.and_then(|first| outcome.ratio_to(first)).map_or(String::new(), |ratio| {
        format!("{} ({}..{})", factor(ratio.median), factor(ratio.min), factor(ratio.max))
    });
    let cpu = figures.cpu_per_op();
    let waits = figures
        .waits
        .iter()
        .filter(|of| of.waits > 0)
        .map(|of| format!("{:?} {} ({} ms)", of.rank, of.waits, short(of.nanos as f64 / 1e6)));
    let cells = [
        short(rate.median),
        format!("{}..{}", short(rate.min), short(rate.max)),
        ratio,
        cpu.map_or(String::new(), |cpu| micros(cpu.total())),
        cpu.map_or(String::new(), |cpu| micros(cpu.loop_devices)),
        figures.latencies.percentile(0.5).map_or(String::new(), micros),
        figures.latencies.percentile(0.99).map_or(String::new(), micros),
        figures.latencies.percentile(0.999).map_or(String::new(), micros),
        waits.collect::<Vec<_>>().join(", "),
    ];
    for cell in cells {
        let _ = write!(page, "<td>{cell}");
    }
}

/// Text as it stands between tags and in attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Figures, Workload};

    #[test]
    fn a_page_has_every_target_and_fetches_nothing() {
        let ran = |rate: f64| {
            let mut figures = Figures { rates: vec![rate; 3], operations: 3, ..Figures::default() };
            figures.latencies.record(Duration::from_micros(7));
            Outcome::Ran(Box::new(figures))
        };
        let measured = |threads| Measured {
            workload: Workload::Create,
            threads,
            outcomes: vec![
                ("dir:<a&b>".into(), ran(1000.0)),
                ("lib:ram".into(), ran(2000.0)),
                ("gone".into(), Outcome::Failed("no <space>".into())),
            ],
        };
        let all = [measured(1), measured(2)];
        let machine = Machine::now();
        let page = html("lanefs bench create", &machine, &machine, &chapters(&all));
        assert!(page.contains("dir:&lt;a&amp;b&gt;") && page.contains("no &lt;space&gt;"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<h2>").count(), 1);
        for fetched in ["http:", "https:", "<script", "<link", "<img", "url("] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }
}
