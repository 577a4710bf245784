//! A report as one HTML file with tables and plots, without external resources.

mod plot;

use crate::figures::{Measured, Outcome};
use crate::machine::Machine;
use crate::record::{Chapter, Ending, Record};
use crate::report::{factor, short};
use plot::{Across, Plot, Point, Series, escaped};
use std::fmt::Write;
use std::time::Duration;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:80em;margin:2em auto;padding:0 1em;\
color:#222;background:#fff}table{border-collapse:collapse;margin:.6em 0;font-size:13px}\
th,td{padding:.15em .6em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap;vertical-align:top}\
th{vertical-align:bottom;white-space:normal}th:nth-child(2),td:nth-child(2),th:last-child,td:last-child\
{text-align:left}td:last-child{white-space:normal;min-width:16em}tr.n td{border-top:2px solid #bbb}\
.w{overflow-x:auto}.plots{display:flex;flex-wrap:wrap;gap:1em}svg{background:#fafafa;\
border:1px solid #e5e5e5;max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#444}\
svg .t{font-weight:600}nav a{margin-right:1em;white-space:nowrap}code{background:#f2f2f2;padding:0 .3em}\
small{color:#666}";

/// Returns the page.
pub fn html(record: &Record) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>Lanefs benchmark</title><style>{STYLE}</style></head><body>\n\
         <h1>Lanefs benchmark</h1>\n<p><code>{}</code></p>\n<p>{}<br><small>at the end: {}</small></p>\n",
        escaped(&record.command),
        escaped(&record.before.to_string()),
        escaped(&record.after.to_string()),
    );
    page += "<p>Targets took turns in short slices. Rates are medians of the slices, with the smallest and the \
             largest; ratios to the first target are computed slice by slice. Latencies are of a sample of the operations. \
             CPU time is that of the process, the server and the kernel's threads. All axes except that of \
             percentiles are logarithmic. Bars reach from the smallest slice to the largest; a bar far \
             outside of the plot is cut off. Points that would cover each other are moved apart.</p>\n";
    if record.chapters.iter().flat_map(|chapter| &chapter.measured).any(is_oversubscribed) {
        let _ = writeln!(
            page,
            "<p>* more workers than the {} processors: they take turns, so they cannot be faster than {0} \
             workers, but their waits for locks still show.</p>",
            Machine::processors()
        );
    }
    if record.ending == Ending::Interrupted {
        page += "<p><b>Interrupted: not all was measured.</b></p>\n";
    }
    if record.chapters.len() > 2 {
        page += "<nav>";
        for (n, chapter) in record.chapters.iter().enumerate() {
            let _ = write!(page, "<a href=\"#c{n}\">{}</a> ", escaped(&chapter.title));
        }
        page += "</nav>\n";
    }
    for (n, chapter) in record.chapters.iter().enumerate() {
        chapter_to(&mut page, chapter, n);
    }
    page += "</body></html>\n";
    page
}

/// Returns whether the measurement had more workers than the machine has processors.
fn is_oversubscribed(measured: &Measured) -> bool {
    measured.threads as usize > Machine::processors()
}

fn chapter_to(page: &mut String, chapter: &Chapter, number: usize) {
    let Some(first) = chapter.measured.first() else { return };
    let title = escaped(&chapter.title);
    // Writing to a string does not fail.
    let _ = writeln!(page, "<h2 id=\"c{number}\">{title}</h2>\n<div class=\"plots\">");
    let names: Vec<&str> = first.outcomes.iter().map(|(name, _)| name.as_str()).collect();
    *page += &throughput(chapter, &names, first.unit).svg();
    *page += &latency(chapter, &names).svg();
    *page += "</div>\n";
    table_to(page, chapter, first.unit);
}

/// Returns a plot that shows the throughput for each number of threads.
fn throughput(chapter: &Chapter, names: &[&str], unit: &str) -> Plot {
    let series = names.iter().enumerate().map(|(n, name)| {
        let points = chapter.measured.iter().filter_map(|measured| {
            let rate = measured.outcomes.get(n)?.1.rate()?;
            Some((f64::from(measured.threads), rate.median, Some((rate.min, rate.max))))
        });
        // The points may have been measured in any order. They are sorted, because the line is
        // drawn from left to right.
        let mut points: Vec<Point> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: (*name).into(), points }
    });
    let series = series.collect();
    let limit = Machine::processors() as f64;
    let across = Across::Counts { name: "workers".into(), limit };
    Plot { title: format!("{unit} over workers"), across, series }
}

/// The percentiles that are plotted, as shares of the operations, with their labels.
const PERCENTILES: [(f64, &str); 4] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];

/// Returns the plot of latency percentiles for the largest number of workers that was measured.
fn latency(chapter: &Chapter, names: &[&str]) -> Plot {
    let most = chapter.measured.iter().max_by_key(|measured| measured.threads);
    // The position of a percentile is its number of nines, so that each further nine takes the same
    // space.
    let nines = |share: f64| -(1.0 - share).log10();
    let series = names.iter().enumerate().map(|(n, name)| {
        let figures = most.and_then(|measured| measured.outcomes.get(n)?.1.figures());
        let points = PERCENTILES.into_iter().filter_map(|(share, _)| {
            let late = figures?.latencies.percentile(share)?;
            Some((nines(share), late.as_secs_f64() * 1e6, None))
        });
        Series { name: (*name).into(), points: points.collect() }
    });
    let series = series.collect();
    let marks = PERCENTILES.map(|(share, name)| (nines(share), name.into())).to_vec();
    let title = match most.map_or(0, |measured| measured.threads) {
        1 => "latency in us, 1 worker".into(),
        threads => format!("latency in us, {threads} workers"),
    };
    Plot { title, across: Across::Named { name: "of the operations".into(), marks }, series }
}

fn table_to(page: &mut String, chapter: &Chapter, unit: &str) {
    let _ = writeln!(
        page,
        "<div class=\"w\"><table><tr><th>workers<th>target<th>{unit}<th>slices<th>times the first<th>us CPU\
         <th>loop device<th>50 % us<th>99 % us<th>99.9 % us<th>waits for locks: count, total, mean; what else was counted, for each operation</tr>"
    );
    for measured in &chapter.measured {
        let first = measured.outcomes.first().map(|(_, outcome)| outcome);
        for (n, (name, outcome)) in measured.outcomes.iter().enumerate() {
            let _ = match n {
                0 => {
                    let oversubscribed = if is_oversubscribed(measured) { "*" } else { "" };
                    write!(page, "<tr class=\"n\"><td>{}{oversubscribed}", measured.threads)
                }
                _ => write!(page, "<tr><td>"),
            };
            let _ = write!(page, "<td>{}", escaped(name));
            row_to(page, outcome, first);
            *page += "</tr>\n";
        }
    }
    *page += "</table></div>\n";
}

fn row_to(page: &mut String, outcome: &Outcome, first: Option<&Outcome>) {
    let (figures, rate) = match (outcome, outcome.rate()) {
        (Outcome::Ran(figures), Some(rate)) => (figures, rate),
        (Outcome::Failed(why), _) => {
            let _ = write!(page, "<td colspan=\"9\">failed: {}", escaped(why));
            return;
        }
        (Outcome::Interrupted, _) => {
            *page += "<td colspan=\"9\">interrupted";
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
    let waits = figures.waits.iter().filter(|of| of.waits > 0).map(|of| {
        let (total, mean) = (of.nanos as f64 / 1e6, of.nanos as f64 / of.waits as f64 / 1e3);
        format!("{:?} {}, {} ms, {} us each", of.rank, of.waits, short(total), short(mean))
    });
    let counts = figures.counts.iter().filter(|of| of.value >= LEAST).map(|of| {
        let name = of.name.replace('_', " ");
        format!("{} {name}", short(of.value))
    });
    let cells = [
        short(rate.median),
        format!("{}..{}", short(rate.min), short(rate.max)),
        ratio,
        cpu.map_or(String::new(), |cpu| micros(cpu.total())),
        cpu.filter(|cpu| !cpu.loop_devices.is_zero())
            .map_or(String::new(), |cpu| micros(cpu.loop_devices)),
        figures.latencies.percentile(0.5).map_or(String::new(), micros),
        figures.latencies.percentile(0.99).map_or(String::new(), micros),
        figures.latencies.percentile(0.999).map_or(String::new(), micros),
        waits.chain(counts).collect::<Vec<_>>().join("; "),
    ];
    for cell in cells {
        let _ = write!(page, "<td>{cell}");
    }
}

/// The smallest value that is printed. With two decimals, a smaller value would show as 0.00.
const LEAST: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;
    use crate::record::chapters;
    use crate::workload::Workload;

    #[test]
    fn a_page_has_every_target_and_fetches_nothing() {
        let ran = |rate: f64| {
            let mut figures = Figures { rates: vec![rate; 3], operations: 3, ..Figures::default() };
            figures.latencies.record(Duration::from_micros(7));
            Outcome::Ran(Box::new(figures))
        };
        let measured = |threads| Measured {
            workload: Workload::Create.name(),
            unit: Workload::Create.unit(),
            threads,
            outcomes: vec![
                ("dir:<a&b>".into(), ran(1000.0)),
                ("lib:ram".into(), ran(2000.0)),
                ("gone".into(), Outcome::Failed("no <space>".into())),
            ],
        };
        let machine = Machine::now();
        let page = html(&Record {
            command: "lanefs bench create".into(),
            before: machine.clone(),
            after: machine,
            ending: Ending::Interrupted,
            chapters: chapters(vec![measured(1), measured(2)]),
        });
        assert!(page.contains("Interrupted"));
        assert!(page.contains("dir:&lt;a&amp;b&gt;") && page.contains("no &lt;space&gt;"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<h2 ").count(), 1);
        for fetched in ["src=", "@import", "<script", "<link", "<img", "url("] {
            assert!(!page.contains(fetched), "{fetched}");
        }
    }
}
