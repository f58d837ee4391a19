//! What each choice would bring, as one HTML file: plots, figures, and what is taken to be true. Nothing is loaded from
//! elsewhere.

use super::{Judged, Question};
use crate::html::{STYLE, escaped, keys};
use crate::metrics::Metrics;
use crate::plot::{Bar, bars};
use std::fmt::Write;

type Figure = (&'static str, &'static str, fn(&Metrics) -> f64);

const PLOTS: [Figure; 4] = [
    ("Mean wait", "h", |metrics| metrics.wait_mean_s / 3600.0),
    ("Wait, 95th percentile", "h", |metrics| {
        metrics.wait_p95_s / 3600.0
    }),
    ("Mean completion time", "h", |metrics| metrics.jct_mean_s / 3600.0),
    ("Energy", "MWh", |metrics| metrics.energy_kwh / 1000.0),
];

/// The report of an answer. `jobs` says whose jobs they are, `assumed` what the answer rests on that nobody measured.
#[must_use]
pub fn report(jobs: &str, question: &Question<'_>, judged: &[Judged], assumed: &[String]) -> String {
    let names: Vec<String> = judged
        .iter()
        .map(|one| escaped(&one.option.to_string()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Capacity for {0}</title><style>{STYLE}</style>\
<h1>What more would bring for {0}</h1><p>{1} jobs by policy {2}, run times {3}. Late is who waits for longer than {4} h; \
never served is whom the pool could never hold.</p>",
        escaped(jobs),
        question.trace.jobs.len(),
        question.policy.name,
        question.runtimes,
        question.patience_s / 3600.0,
    );
    html.push_str(&keys(&names));
    for (title, unit, figure) in PLOTS {
        let all: Vec<Bar<'_>> = names
            .iter()
            .zip(judged)
            .map(|(series, one)| Bar {
                group: String::new(),
                series,
                value: figure(&one.metrics),
            })
            .collect();
        html.push_str(&bars(title, unit, &names, &all));
    }
    figures(&mut html, &names, judged);
    html.push_str("<h2>What is assumed</h2><ul>");
    for line in assumed {
        // Writing to a String cannot fail.
        let _ = write!(html, "<li>{}</li>", escaped(line));
    }
    html.push_str("</ul></html>\n");
    html
}

fn figures(html: &mut String, names: &[&str], judged: &[Judged]) {
    html.push_str(
        "<h2>Figures</h2><table><tr><th>option<th>USD<th>GPUs<th>hosts<th>slots<th>wait mean h<th>p95<th>JCT mean h<th>late\
<th>never served<th>used<th>stranded GPU-h<th>MWh</tr>\n",
    );
    for (name, one) in names.iter().zip(judged) {
        let metrics = &one.metrics;
        let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
        let cost = one
            .cost_usd
            .map_or_else(|| "?".to_owned(), |usd| format!("{usd:.0}"));
        let _ = writeln!(
            html,
            "<tr><td>{name}<td>{cost}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.0}<td>{}<td>{:.1} %<td>{:.0}<td>{:.2}</tr>",
            one.gpus,
            one.hosts,
            one.slots,
            hours(metrics.wait_mean_s),
            hours(metrics.wait_p95_s),
            hours(metrics.jct_mean_s),
            one.waited_too_long,
            metrics.refused,
            100.0 * metrics.utilization,
            metrics.stranded_gpu_h,
            metrics.energy_kwh / 1000.0,
        );
    }
    html.push_str("</table>\n");
}
