use super::*;
use Privilege::{ApplyPlans, ConfigureComponents, ConfigureManager, ConfigureUsers};

fn grants(role: Role, bindings: &[(Role, &str)]) -> Grants {
    let binding = |(role, scope): &(Role, &str)| Binding {
        role: *role,
        scope: scope.parse().unwrap(),
    };
    Grants {
        account: "kim".to_owned(),
        role,
        bindings: bindings.iter().map(binding).collect(),
    }
}

fn touched(tenant: Option<&str>, fabrics: &[&str]) -> Touched {
    Touched {
        what: "demand chat".to_owned(),
        tenant: tenant.map(|name| name.parse().unwrap()),
        fabrics: fabrics.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

#[test]
fn of_each_role_and_scope_it_is_known_what_may_be_changed() {
    let things = [
        touched(Some("a"), &[]),
        touched(Some("b"), &[]),
        touched(Some("a"), &["f"]),
        touched(Some("b"), &["f"]),
        touched(Some("b"), &["f", "g"]),
        touched(None, &["f"]),
        touched(None, &[]),
    ];
    use Role::{Administrator, Auditor, Operator, Planner, ReadOnly};
    // Who, what for, and for each of the things above whether it may be changed.
    let table = [
        (grants(Administrator, &[]), ConfigureComponents, "yyyyyyy"),
        (grants(Operator, &[]), ConfigureComponents, "yyyyyyy"),
        (grants(ReadOnly, &[]), ConfigureComponents, "-------"),
        (grants(Auditor, &[]), ConfigureComponents, "-------"),
        (
            grants(ReadOnly, &[(Operator, "pool")]),
            ConfigureComponents,
            "yyyyyyy",
        ),
        (
            grants(ReadOnly, &[(Operator, "tenant/a")]),
            ConfigureComponents,
            "y-y----",
        ),
        (
            grants(ReadOnly, &[(Operator, "tenant/b")]),
            ConfigureComponents,
            "-y-yy--",
        ),
        (
            grants(ReadOnly, &[(Operator, "fabric/f")]),
            ConfigureComponents,
            "--yy-y-",
        ),
        (
            grants(ReadOnly, &[(Operator, "fabric/f"), (Operator, "fabric/g")]),
            ConfigureComponents,
            "--yyyy-",
        ),
        (
            grants(Auditor, &[(Operator, "tenant/a"), (Operator, "tenant/b")]),
            ConfigureComponents,
            "yyyyy--",
        ),
        // A planner applies plans and does nothing else.
        (grants(ReadOnly, &[(Planner, "tenant/a")]), ApplyPlans, "y-y----"),
        (
            grants(ReadOnly, &[(Planner, "tenant/a")]),
            ConfigureComponents,
            "-------",
        ),
        (grants(Planner, &[(Operator, "tenant/a")]), ApplyPlans, "yyyyyyy"),
        (
            grants(Planner, &[(Operator, "tenant/a")]),
            ConfigureComponents,
            "y-y----",
        ),
        // What is the manager's own is in no scope.
        (
            grants(ReadOnly, &[(Operator, "pool")]),
            ConfigureManager,
            "-------",
        ),
        (grants(ReadOnly, &[(Operator, "pool")]), ConfigureUsers, "-------"),
    ];
    for (who, privilege, may) in table {
        for (thing, may) in things.iter().zip(may.chars()) {
            let judged = who.judge(privilege, std::slice::from_ref(thing));
            assert_eq!(
                judged.is_ok(),
                may == 'y',
                "{who:?} {privilege:?} {thing:?}: {judged:?}"
            );
        }
    }
}

#[test]
fn one_thing_beyond_the_scope_is_enough_to_refuse_all_and_is_named() {
    let who = grants(Role::ReadOnly, &[(Role::Operator, "tenant/a")]);
    let (ours, theirs) = (touched(Some("a"), &["f"]), touched(Some("b"), &["f"]));
    let refused = who.judge(ConfigureComponents, &[ours, theirs]).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Forbidden);
    assert_eq!(
        refused.message,
        "kim may not change demand chat of tenant b: that needs ConfigureComponents in tenant/b or fabric/f or pool, and \
         kim has the role ReadOnly and Operator in tenant/a"
    );
    assert_eq!(
        refused.details,
        ["ConfigureComponents in tenant/b or fabric/f or pool"]
    );
}

#[test]
fn what_touches_nothing_needs_the_role_somewhere() {
    let who = grants(Role::ReadOnly, &[(Role::Planner, "tenant/a")]);
    assert!(who.judge(ApplyPlans, &[]).is_ok());
    assert!(who.judge(ConfigureComponents, &[]).is_err());
}

#[test]
fn a_scope_is_written_as_it_is_read() {
    for text in ["pool", "tenant/a", "fabric/rack-1/pcie"] {
        assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
    }
    for wrong in ["", "tenant", "tenant/", "rack/1", "Pool", "tenant/a b", "pool/x"] {
        let refused = wrong.parse::<Scope>().unwrap_err();
        assert!(
            refused.contains("say pool, tenant/NAME or fabric/NAME"),
            "{refused}"
        );
    }
}

#[test]
fn roles_that_are_not_about_gpus_alone_are_bound_to_no_scope() {
    for role in Role::ALL {
        let bound = grants(Role::ReadOnly, &[(role, "pool")]).bindings;
        let may = matches!(role, Role::Operator | Role::Planner);
        assert_eq!(check(&bound).is_ok(), may, "{role}");
    }
    let one = grants(Role::ReadOnly, &[(Role::Operator, "pool")]).bindings;
    let so_many = |count: usize| vec![one[0].clone(); count];
    assert!(check(&so_many(MOST)).is_ok());
    assert!(check(&so_many(MOST + 1)).is_err());
}
