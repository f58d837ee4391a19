//! A plan over time as a picture: who runs where when, how much of the pool is used, and what it draws. One file that
//! loads nothing from elsewhere: SVG, or a page with the same picture, the figures, and what is not served.

use crate::output::human::counted;
use poolwright_planner::horizon::{Assignment, Problem, Unserved, Usage, cps1};
use std::fmt::Write;
use std::ops::Range;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 110.0;
const LANE: f64 = 16.0;
const GAP: f64 = 6.0;
const CHART: f64 = 110.0;
const HEAD: f64 = 48.0;
/// Most hosts and demands that are drawn: a browser is to open it.
const MOST_HOSTS: usize = 400;
const MOST_BLOCKS: usize = 20_000;

const COLOURS: [&str; 8] = [
    "#5fa8d3", "#1b7f5c", "#c9a227", "#d1495b", "#7b6fb0", "#52606d", "#e08e45", "#3d8f9f",
];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2933}.title{font-weight:600;font-size:14px}\
.small{font-size:10px;fill:#52606d}.in{font-size:10px;fill:#fff}.grid{stroke:#e4e7eb}.lane{fill:#f5f7fa}\
.closed{fill:#d8dde3}";

/// Everything that is drawn.
pub struct Picture<'a> {
    pub name: &'a str,
    pub instance: &'a cps1::Instance,
    pub problem: &'a Problem,
    pub assignment: &'a Assignment,
    pub unserved: &'a [Unserved],
    /// The first line of the plan.
    pub summary: &'a str,
    /// What is written under the slots; none: their numbers.
    pub slot_names: &'a [String],
}

/// A demand in the picture.
struct Block {
    demand: usize,
    id: String,
    lane: usize,
}

impl Picture<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Plan of {0}</title>\
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#1f2933}}\
svg{{width:100%;height:auto}}{STYLE}</style></head><body>\n<h1>Plan of {0}</h1>\n<p>{1}</p>\n{2}",
            escaped(self.name),
            escaped(self.summary),
            self.svg()
        );
        if !self.unserved.is_empty() {
            page.push_str("<h2>What is not served</h2>\n<ul>\n");
        }
        for unserved in self.unserved {
            // Writing to a String cannot fail.
            let _ = write!(
                page,
                "<li><b>{}</b>: {}",
                escaped(&unserved.demand),
                escaped(&unserved.reason)
            );
            for help in &unserved.help {
                let _ = write!(page, "<br>would help: {}", escaped(help));
            }
            page.push_str("</li>\n");
        }
        if !self.unserved.is_empty() {
            page.push_str("</ul>\n");
        }
        page.push_str(
            "<p>Power is what the problem says of GPUs at work and idle and of hosts on and idle; a GPU that is \
detached is taken to draw nothing.</p>\n</body></html>\n",
        );
        page
    }

    /// The picture alone.
    pub fn svg(&self) -> String {
        let hosts = self.problem.hosts.len().min(MOST_HOSTS);
        let rows: Vec<(Vec<Block>, usize)> = (0..hosts).map(|host| self.row(host)).collect();
        let gantt: f64 = rows.iter().map(|(_, lanes)| LANE * *lanes as f64 + GAP).sum();
        let height = HEAD + gantt + 2.0 * (CHART + HEAD) + 10.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
aria-label=\"{0}\"><style>{STYLE}</style>\n<text x=\"0\" y=\"16\" class=\"title\">{0}</text>\n\
<text x=\"0\" y=\"32\" class=\"small\">{1}</text>\n",
            escaped(self.name),
            escaped(self.summary)
        );
        let mut top = HEAD;
        let mut drawn = 0;
        for (host, (blocks, lanes)) in rows.iter().enumerate() {
            self.host(&mut svg, host, top, *lanes);
            for block in blocks.iter().take(MOST_BLOCKS - drawn.min(MOST_BLOCKS)) {
                self.block(&mut svg, block, top);
            }
            drawn += blocks.len();
            top += LANE * *lanes as f64 + GAP;
        }
        let more_hosts = self.problem.hosts.len() - hosts;
        if more_hosts > 0 || drawn > MOST_BLOCKS {
            let demands = drawn.saturating_sub(MOST_BLOCKS);
            let _ = writeln!(
                svg,
                "<text x=\"{LEFT}\" y=\"{:.1}\" class=\"small\">not drawn: {more_hosts} more hosts, and {demands} \
demands of those that are</text>",
                top + 8.0
            );
        }
        self.charts(&mut svg, top + HEAD * 0.5);
        svg.push_str("</svg>\n");
        svg
    }

    /// Who runs at a host, each in a lane where nobody else is then; and how many lanes that takes.
    fn row(&self, host: usize) -> (Vec<Block>, usize) {
        let id = &self.problem.hosts[host].id;
        let all = self
            .problem
            .demands
            .iter()
            .zip(&self.assignment.demands)
            .enumerate();
        let here = all.filter(|(_, (_, served))| served.host.as_ref() == Some(id));
        let mut here: Vec<(usize, String)> =
            here.map(|(place, (demand, _))| (place, demand.name())).collect();
        here.sort_by_key(|(place, _)| self.problem.demands[*place].window.start);
        let mut free_from: Vec<usize> = Vec::new();
        let mut blocks = Vec::new();
        for (demand, id) in here {
            let window = &self.problem.demands[demand].window;
            let lane = free_from.iter().position(|free| *free <= window.start);
            let lane = lane.unwrap_or(free_from.len());
            match free_from.get_mut(lane) {
                Some(free) => *free = window.end,
                None => free_from.push(window.end),
            }
            blocks.push(Block { demand, id, lane });
        }
        (blocks, free_from.len().max(1))
    }

    /// From when to when, in words.
    fn span(&self, slots: &Range<usize>) -> String {
        match self.slot_names.is_empty() {
            true if slots.len() == 1 => format!("in slot {}", slots.start),
            true => format!("in slots {} to {}", slots.start, slots.end - 1),
            false => format!("from {} to {}", self.slot(slots.start), self.slot(slots.end)),
        }
    }

    fn slot(&self, slot: usize) -> String {
        let name = self.slot_names.get(slot);
        name.map_or_else(|| slot.to_string(), |name| escaped(name).to_string())
    }

    fn x(&self, slot: usize) -> f64 {
        LEFT + (WIDTH - LEFT) * slot as f64 / self.problem.slots.max(1) as f64
    }

    fn host(&self, svg: &mut String, host: usize, top: f64, lanes: usize) {
        let host = &self.problem.hosts[host];
        let height = LANE * lanes as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"lane\"/>\
<text x=\"0\" y=\"{:.1}\">{}<title>room for {} GPUs</title></text>",
            WIDTH - LEFT,
            top + 12.0,
            escaped(&host.id),
            host.room
        );
        for closed in &host.closed {
            let (from, to) = (self.x(closed.start), self.x(closed.end));
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"closed\">\
<title>closed in slots {} to {}</title></rect>",
                to - from,
                closed.start,
                closed.end - 1
            );
        }
    }

    fn block(&self, svg: &mut String, block: &Block, top: f64) {
        let demand = &self.problem.demands[block.demand];
        let (from, to) = (self.x(demand.window.start), self.x(demand.window.end));
        let y = top + LANE * block.lane as f64;
        let served = &self.assignment.demands[block.demand];
        let (gpus, count) = (&served.gpus, served.got().unwrap_or(0));
        let groups: Vec<String> = gpus
            .iter()
            .map(|(group, count)| format!("{count} {group}"))
            .collect();
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\"><title>{} of {}: \
{} {}, {}</title></rect>",
            y + 0.5,
            (to - from - 1.0).max(0.5),
            LANE - 1.0,
            self.colour(&demand.tenant),
            escaped(&block.id),
            escaped(&demand.tenant),
            counted(count as usize, "GPU"),
            self.span(&demand.window),
            escaped(&groups.join(", "))
        );
        let label = format!("{} ({count})", block.id);
        // Where it has room, at some 6 units a letter.
        if to - from > 6.0 * label.chars().count() as f64 {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"in\">{}</text>",
                from + 3.0,
                y + 11.5,
                escaped(&label)
            );
        }
    }

    /// A tenant has one colour, by when it is named first.
    fn colour(&self, tenant: &str) -> &'static str {
        let mut tenants: Vec<&str> = Vec::new();
        for demand in &self.problem.demands {
            if tenants.len() < COLOURS.len() && !tenants.contains(&demand.tenant.as_str()) {
                tenants.push(&demand.tenant);
            }
        }
        let place = tenants.iter().position(|known| *known == tenant);
        COLOURS[place.unwrap_or(COLOURS.len() - 1)]
    }

    fn charts(&self, svg: &mut String, top: f64) {
        let usage = Usage::of(self.problem, self.assignment);
        let sum = |of: &[Vec<u32>]| -> Vec<f64> {
            (0..self.problem.slots)
                .map(|slot| of.iter().map(|group| f64::from(group[slot])).sum())
                .collect()
        };
        let (used, attached) = (sum(&usage.used), sum(&usage.attached));
        let gpus = self
            .problem
            .groups
            .iter()
            .map(|group| f64::from(group.count))
            .sum();
        let mean = used.iter().sum::<f64>() / used.len().max(1) as f64;
        let title = format!(
            "GPUs at work (filled) and attached (line), of {gpus}; {:.0} % at work over the horizon",
            if gpus > 0.0 { 100.0 * mean / gpus } else { 0.0 }
        );
        self.chart(svg, top, (&title, "GPUs"), gpus, [&used, &attached]);
        let power = self.power_kw(&usage);
        let hours = self.instance.slot_s / 3600.0;
        let title = format!(
            "Power in kW; {:.1} kWh over the horizon",
            power.iter().sum::<f64>() * hours
        );
        let most = power.iter().copied().fold(0.0, f64::max);
        self.chart(svg, top + CHART + HEAD, (&title, "kW"), most, [&power, &power]);
    }

    /// What GPUs and hosts draw in each slot.
    fn power_kw(&self, usage: &Usage) -> Vec<f64> {
        let watts = |group: usize| {
            let name = self.problem.group_name(group);
            let mut alike = self.instance.gpus.iter();
            let alike = alike.find(|gpu| format!("{}@{}", gpu.kind, gpu.switch) == name);
            alike.map_or((0.0, 0.0), |gpu| (gpu.active_w, gpu.idle_w))
        };
        let watts: Vec<(f64, f64)> = (0..self.problem.groups.len()).map(watts).collect();
        let at = |slot: usize| {
            let gpus = watts.iter().enumerate().map(|(group, (active, idle))| {
                let (used, attached) = (usage.used[group][slot], usage.attached[group][slot]);
                f64::from(used) * active + f64::from(attached.saturating_sub(used)) * idle
            });
            let hosts = self.instance.hosts.iter().zip(&usage.on);
            let hosts = hosts.map(|(host, on)| {
                if on[slot] {
                    host.host_on_w
                } else {
                    host.host_idle_w
                }
            });
            (gpus.sum::<f64>() + hosts.sum::<f64>()) / 1000.0
        };
        (0..self.problem.slots).map(at).collect()
    }

    /// Steps over the slots: the first series filled, the second a line.
    fn chart(
        &self,
        svg: &mut String,
        top: f64,
        (title, unit): (&str, &str),
        most: f64,
        [filled, line]: [&[f64]; 2],
    ) {
        let base = top + 18.0 + CHART;
        let y = |value: f64| base - if most > 0.0 { CHART * value / most } else { 0.0 };
        let steps = |values: &[f64]| {
            let mut points = String::new();
            for (slot, value) in values.iter().enumerate() {
                let (from, to, y) = (self.x(slot), self.x(slot + 1), y(*value));
                let _ = write!(points, "{from:.1},{y:.1} {to:.1},{y:.1} ");
            }
            points
        };
        let end = self.x(self.problem.slots);
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{:.1}\" class=\"title\">{}</text>\n\
<line x1=\"{LEFT}\" y1=\"{base:.1}\" x2=\"{end:.1}\" y2=\"{base:.1}\" class=\"grid\"/>\
<line x1=\"{LEFT}\" y1=\"{:.1}\" x2=\"{end:.1}\" y2=\"{:.1}\" class=\"grid\"/>\
<text x=\"0\" y=\"{:.1}\" class=\"small\">{most:.1} {unit}</text>\
<polygon points=\"{LEFT},{base:.1} {}{end:.1},{base:.1}\" fill=\"{}\" fill-opacity=\"0.5\"/>\
<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>",
            top + 8.0,
            escaped(title),
            y(most),
            y(most),
            y(most) + 4.0,
            steps(filled),
            COLOURS[0],
            steps(line),
            COLOURS[5]
        );
        let every = self.problem.slots.div_ceil(12).max(1);
        for slot in (0..=self.problem.slots).step_by(every) {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"small\">{}</text>",
                self.x(slot),
                base + 12.0,
                self.slot(slot)
            );
        }
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // What no document may hold.
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
