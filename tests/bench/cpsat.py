"""A straightforward model of a problem over time (schema cps-1) for OR-tools CP-SAT: the peer of tests/bench/planner.

    cpsat.py INSTANCE SECONDS SOLUTION

Every GPU group at every host in every slot is a number of attached GPUs, every demand at every host a yes or no. Prints a
line of JSON: when which cost and which bound were reached, and the last of them; writes the solution. Times are seconds
on a core, from when the model is made."""

import json
import sys
import threading
import time
from pathlib import Path

from ortools.sat.python import cp_model

# Costs in thousandths, as the schema rounds them.
UNIT = 1000


class Model:
    def __init__(self, problem):
        self.problem, self.model, self.cost = problem, cp_model.CpModel(), []
        self.slots, self.hosts = range(problem["horizon_slots"]), problem["hosts"]
        self.groups, self.count, self.first = {}, {}, {}
        for gpu in problem["gpus"]:
            group = (gpu["type"], gpu["switch"])
            self.groups[group] = gpu
            self.count[group] = self.count.get(group, 0) + 1
            if gpu["attached_to"]:
                key = (gpu["attached_to"], group)
                self.first[key] = self.first.get(key, 0) + 1
        price = {name: round(value * UNIT) for name, value in problem["costs"].items()}
        self.price = price
        self.energy = lambda watts: round(watts * problem["slot_s"] / 3600 / 1000 * problem["costs"]["energy_per_kwh"] * UNIT)
        self.places()
        self.attaching()
        self.powering()
        self.model.minimize(sum(self.cost))

    def places(self):
        """Which host a demand runs on, and on how many GPUs of each group."""
        model, price = self.model, self.price
        self.at, self.given = {}, {}
        for demand in self.problem["demands"]:
            name, length, wanted = demand["id"], demand["end"] - demand["start"], demand["gpus"]
            good = [group for group, gpu in self.groups.items() if gpu["mem_gb"] >= demand["min_mem_gb"]]
            kinds = {kind: model.new_bool_var("") for kind, _ in good}
            model.add_at_most_one(kinds.values())
            for host in self.hosts:
                here = self.at[name, host["id"]] = model.new_bool_var("")
                given = {group: model.new_int_var(0, min(wanted, self.count[group]), "") for group in good}
                model.add(sum(given.values()) == wanted * here)
                for group, number in given.items():
                    model.add(number <= wanted * kinds[group[0]])
                    self.given[name, host["id"], group] = number
                    hop = price["hop_per_gpu_slot"] if group[1] != host["switch"] else 0
                    self.cost.append(length * (self.energy(self.groups[group]["active_w"]) + hop) * number)
            served = [self.at[name, host["id"]] for host in self.hosts]
            model.add_at_most_one(served)
            unmet = round(self.problem["costs"]["unmet_per_gpu_slot"] * demand["weight"] * wanted * length * UNIT)
            self.cost.append(unmet * (1 - sum(served)))

    def attaching(self):
        """What is attached in each slot, and what that costs."""
        model, price = self.model, self.price
        self.attached = {}
        by_slot = [[one for one in self.problem["demands"] if one["start"] <= slot < one["end"]] for slot in self.slots]
        for host in self.hosts:
            for group, count in self.count.items():
                before = self.first.get((host["id"], group), 0)
                for slot in self.slots:
                    now = model.new_int_var(0, min(count, host["slots"]), "")
                    more, less = model.new_int_var(0, count, ""), model.new_int_var(0, count, "")
                    model.add(more - less == now - before)
                    keys = [(one["id"], host["id"], group) for one in by_slot[slot]]
                    used = sum(self.given[key] for key in keys if key in self.given)
                    model.add(used <= now)
                    self.cost.append(price["attach"] * more + price["detach"] * less)
                    self.cost.append(self.energy(self.groups[group]["idle_w"]) * (now - used))
                    self.attached[host["id"], group, slot] = before = now
        for slot in self.slots:
            for host in self.hosts:
                model.add(sum(self.attached[host["id"], group, slot] for group in self.count) <= host["slots"])
            for group, count in self.count.items():
                model.add(sum(self.attached[host["id"], group, slot] for host in self.hosts) <= count)

    def powering(self):
        """Which hosts are on."""
        model = self.model
        for host in self.hosts:
            before = 0
            for slot in self.slots:
                on, fired = model.new_bool_var(""), model.new_bool_var("")
                for demand in self.problem["demands"]:
                    if demand["start"] <= slot < demand["end"]:
                        model.add(on >= self.at[demand["id"], host["id"]])
                model.add(fired >= on - before)
                self.cost.append(self.energy(host["host_on_w"] - host["host_idle_w"]) * on)
                self.cost.append(self.price["host_fire_up"] * fired)
                before = on

    def solution(self, value):
        """What the schema's checker reads."""
        demands = []
        for demand in self.problem["demands"]:
            name = demand["id"]
            host = next((host["id"] for host in self.hosts if value(self.at[name, host["id"]])), None)
            numbers = {
                f"{kind}@{switch}": value(self.given[name, host, (kind, switch)])
                for kind, switch in self.groups
                if (name, host, (kind, switch)) in self.given
            }
            demands.append({"demand": name, "host": host, "gpus": {key: number for key, number in numbers.items() if number}})
        attached = {
            host["id"]: {
                f"{kind}@{switch}": [value(self.attached[host["id"], (kind, switch), slot]) for slot in self.slots]
                for kind, switch in self.groups
            }
            for host in self.hosts
        }
        return {"assignment": {"demands": demands, "attached": attached}}


class Heard(cp_model.CpSolverSolutionCallback):
    """Notes when which cost was reached."""

    def __init__(self, start):
        super().__init__()
        self.start, self.better = start, []

    def on_solution_callback(self):
        self.better.append((time.process_time() - self.start, self.objective_value / UNIT))


def main():
    instance, seconds, solution = sys.argv[1:]
    model = Model(json.loads(Path(instance).read_text()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    # Raises the bounds of this model a great deal.
    solver.parameters.linearization_level = 2
    made = time.process_time()
    heard, bounds, done = Heard(made), [], threading.Event()
    solver.best_bound_callback = lambda bound: bounds.append((time.process_time() - made, bound / UNIT))

    def stop_in_time():
        """The solver's own limit is by the clock on the wall."""
        while not done.wait(0.02):
            if time.process_time() - made > float(seconds):
                solver.stop_search()

    watch = threading.Thread(target=stop_in_time, daemon=True)
    watch.start()
    status = solver.solve(model.model, heard)
    done.set()
    spent = time.process_time() - made
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    if found:
        Path(solution).write_text(json.dumps(model.solution(solver.value)))
    report = {
        "status": solver.status_name(status),
        "better": heard.better,
        "bounds": bounds,
        "cost": solver.objective_value / UNIT if found else None,
        "bound": solver.best_objective_bound / UNIT,
        "seconds": spent,
        "making_the_model_s": made,
    }
    print(json.dumps(report))


main()
