//! From the compiler's answer to the model: inheritance flattened, names given, access decided.

use std::collections::BTreeMap;

use nv_redfish_csdl_compiler::OneOrCollection;
use nv_redfish_csdl_compiler::compiler::redfish::RedfishProperty;
use nv_redfish_csdl_compiler::compiler::{
    Compiled, NavProperty, NavPropertyExpandable, Parameter, ParameterType, Properties, Property,
    QualifiedName, TypeClass, TypeInfo,
};
use nv_redfish_csdl_compiler::odata::annotations::Permissions;

use crate::facts::{Facts, Range};
use crate::model::{self, Access, Action, Enum, Field, Kind, Model, Struct};
use crate::naming;
use crate::roots::Root;

/// Flattens what was compiled for `roots`.
pub fn flatten(compiled: &Compiled<'_>, roots: &[Root], facts: &Facts) -> Result<Model, String> {
    let builder = Builder {
        compiled,
        roots,
        facts,
    };
    let mut model = Model::default();
    for name in compiled.sorted_type_names() {
        if let Some(members) = builder.enumeration(name) {
            let (schema, csdl) = (schema_of(name), name.to_string());
            model::insert(
                &mut model.enums,
                naming::type_name(&schema, name.name.inner()),
                Enum {
                    csdl,
                    schema,
                    members,
                },
            )?;
        } else if compiled.complex_types.contains_key(&name) && !builder.is_plain_oem(name)
            || builder.is_root(name)
        {
            let (rust, found) = builder.structure(name, false)?;
            model::insert(&mut model.structs, rust, found)?;
        }
        if compiled.excerpt_copies.contains_key(&name) {
            let (rust, found) = builder.structure(name, true)?;
            model::insert(&mut model.structs, rust, found)?;
        }
    }
    model::check(&model)?;
    Ok(model)
}

/// The first identifier of a type's namespace.
fn schema_of(name: QualifiedName<'_>) -> String {
    name.namespace.root().to_string()
}

struct Builder<'c, 'a> {
    compiled: &'c Compiled<'a>,
    roots: &'c [Root],
    facts: &'c Facts,
}

impl<'a> Builder<'_, 'a> {
    fn root(&self, name: QualifiedName<'_>) -> Option<&Root> {
        let schema = schema_of(name);
        self.roots
            .iter()
            .find(|root| root.schema == schema && *name.name.inner() == root.name)
    }

    fn is_root(&self, name: QualifiedName<'_>) -> bool {
        self.compiled.entity_types.contains_key(&name) && self.root(name).is_some()
    }

    /// Whether a type is a place for vendors and nothing else. Each resource has one of its own for actions;
    /// they are all alike, so `Resource.Oem` stands for them.
    fn is_plain_oem(&self, name: QualifiedName<'a>) -> bool {
        name.name.inner() == "OemActions"
            && self.open(name)
            && !self.compiled.actions.contains_key(&name)
            && self.chain(name).iter().all(|properties| properties.is_empty())
    }

    fn structure(&self, name: QualifiedName<'a>, excerpt: bool) -> Result<(String, Struct), String> {
        let schema = schema_of(name);
        let mut rust = naming::type_name(&schema, name.name.inner());
        if excerpt {
            rust.push_str("Excerpt");
        }
        let resource = !excerpt && self.root(name).is_some_and(|root| !root.embedded);
        let mut fields: BTreeMap<String, Field> = BTreeMap::new();
        if self.compiled.entity_types.contains_key(&name) && !excerpt {
            for wire in ["@odata.context", "@odata.etag", "@odata.id", "@odata.type"] {
                fields.insert(wire.to_owned(), annotation(wire, Kind::Text));
            }
        }
        for properties in self.chain(name) {
            for property in properties
                .properties
                .iter()
                .filter(|p| wanted(&p.redfish, excerpt))
            {
                let field = self.property(name, property)?;
                fields.insert(field.wire.clone(), field);
            }
            for property in properties
                .nav_properties
                .iter()
                .filter(|p| wanted(nav_redfish(p), excerpt))
            {
                let field = self.nav_property(property);
                fields.insert(field.wire.clone(), field);
            }
        }
        if fields.get("Members").is_some_and(|members| members.many) && resource {
            for (wire, kind) in [
                ("Members@odata.count", Kind::Integer),
                ("Members@odata.nextLink", Kind::Text),
            ] {
                fields.insert(wire.to_owned(), annotation(wire, kind));
            }
        }
        for action in self.actions_on(name)? {
            let wire = format!("#{}", action.wire);
            let short = action.wire.rsplit('.').next().unwrap_or(&action.wire);
            let field = Field {
                rust: naming::field_name(short),
                ..annotation(&wire, Kind::Action)
            };
            fields.insert(wire, field);
        }
        let actions = fields.get("Actions").and_then(|actions| match &actions.kind {
            Kind::Object(_) => self.property_type(name, "Actions"),
            _ => None,
        });
        let found = Struct {
            csdl: format!("{schema}.{}{}", name.name, if excerpt { "Excerpt" } else { "" }),
            odata_type: resource
                .then(|| self.facts.newest(&schema, name.name.inner()))
                .flatten()
                .map(str::to_owned),
            open: self.open(name),
            fields: fields.into_values().collect(),
            actions: actions
                .map(|actions| self.actions_on(actions))
                .transpose()?
                .unwrap_or_default(),
            schema,
        };
        Ok((rust, found))
    }

    /// The properties of a type and of what it extends, base first.
    fn chain(&self, name: QualifiedName<'a>) -> Vec<&Properties<'a>> {
        let mut chain = Vec::new();
        let mut next = Some(name);
        while let Some(name) = next {
            if let Some(entity) = self.compiled.entity_types.get(&name) {
                chain.push(&entity.properties);
                next = entity.base;
            } else if let Some(complex) = self.compiled.complex_types.get(&name) {
                chain.push(&complex.properties);
                next = complex.base;
            } else {
                next = None;
            }
        }
        chain.reverse();
        chain
    }

    fn open(&self, name: QualifiedName<'a>) -> bool {
        self.compiled.complex_types.get(&name).is_some_and(|complex| {
            complex.redfish.dynamic_properties.is_some()
                || complex
                    .odata
                    .additional_properties
                    .is_some_and(|allowed| allowed.into_inner())
        })
    }

    fn property_type(&self, name: QualifiedName<'a>, property: &str) -> Option<QualifiedName<'a>> {
        let properties = self.chain(name).into_iter().flat_map(|p| &p.properties);
        // The last one counts: it may refine what the type extends.
        properties
            .rev()
            .find(|p| p.name.to_string() == property)
            .map(|p| p.ptype.name())
    }

    fn property(&self, owner: QualifiedName<'a>, property: &Property<'a>) -> Result<Field, String> {
        let (info, type_name) = *property.ptype.inner();
        let wire = property.name.to_string();
        let kind = self
            .kind(info, type_name)
            .map_err(|why| format!("{owner}.{wire}: {why}"))?;
        let access = if self
            .facts
            .create_only(&schema_of(owner), owner.name.inner(), &wire)
        {
            Access::Create
        } else {
            self.access(property.odata.permissions, &kind, type_name)
        };
        Ok(Field {
            rust: naming::field_name(&wire),
            many: matches!(property.ptype, OneOrCollection::Collection(_)),
            access,
            nullable: property.nullable.into_inner(),
            required: property.redfish.is_required.into_inner(),
            required_on_create: property.redfish.is_required_on_create.into_inner(),
            range: self.facts.range(&schema_of(owner), owner.name.inner(), &wire),
            kind,
            wire,
        })
    }

    /// What the property says, else what its type says (`Status` is for reading wherever it stands). A complex
    /// type without a word of its own is as writable as what it holds, save the actions.
    fn access(&self, stated: Option<Permissions>, kind: &Kind, type_name: QualifiedName<'a>) -> Access {
        let of_type = self
            .compiled
            .complex_types
            .get(&type_name)
            .and_then(|complex| complex.odata.permissions);
        match stated.or(of_type) {
            Some(Permissions::Read) => Access::Read,
            Some(Permissions::Write) => Access::Write,
            Some(Permissions::ReadWrite) => Access::ReadWrite,
            None if type_name.name.inner() == "Actions" => Access::Read,
            None if matches!(kind, Kind::Link(_)) => Access::Read,
            None => Access::ReadWrite,
        }
    }

    fn nav_property(&self, property: &NavProperty<'a>) -> Field {
        let wire = property.name().to_string();
        let (many, target, odata, redfish, nullable) = match property {
            NavProperty::Expandable(NavPropertyExpandable {
                ptype,
                odata,
                redfish,
                nullable,
                ..
            }) => {
                let many = matches!(ptype, OneOrCollection::Collection(_));
                (many, Some(ptype.name()), odata, redfish, nullable)
            }
            NavProperty::Reference {
                cardinality,
                odata,
                redfish,
                nullable,
            } => (
                matches!(cardinality, OneOrCollection::Collection(_)),
                None,
                odata,
                redfish,
                nullable,
            ),
        };
        let target_name = |name: QualifiedName<'a>| naming::type_name(&schema_of(name), name.name.inner());
        let kind = match target {
            Some(name) if redfish.excerpt_copy.is_some() => {
                Kind::Object(format!("{}Excerpt", target_name(name)))
            }
            Some(name) if self.root(name).is_some_and(|root| root.embedded) => {
                Kind::Object(target_name(name))
            }
            Some(name) if self.root(name).is_some() => Kind::Link(Some(target_name(name))),
            _ => Kind::Link(None),
        };
        let access = match odata.permissions {
            Some(Permissions::ReadWrite) => Access::ReadWrite,
            Some(Permissions::Write) => Access::Write,
            Some(Permissions::Read) | None => Access::Read,
        };
        Field {
            rust: naming::field_name(&wire),
            kind,
            many,
            access,
            nullable: nullable.into_inner(),
            required: redfish.is_required.into_inner(),
            required_on_create: redfish.is_required_on_create.into_inner(),
            range: Range::default(),
            wire,
        }
    }

    /// The members of an enumeration.
    fn enumeration(&self, name: QualifiedName<'a>) -> Option<Vec<String>> {
        let found = self.compiled.enum_types.get(&name);
        let members = found.map(|found| {
            found
                .members
                .iter()
                .map(|member| member.name.to_string())
                .collect()
        });
        members.or_else(|| {
            Some(
                self.facts
                    .enumeration(&schema_of(name), name.name.inner())?
                    .to_vec(),
            )
        })
    }

    fn kind(&self, info: TypeInfo, name: QualifiedName<'a>) -> Result<Kind, String> {
        let rust = || naming::type_name(&schema_of(name), name.name.inner());
        match info.class {
            TypeClass::EnumType => Ok(Kind::Enum(rust())),
            TypeClass::ComplexType if self.is_plain_oem(name) => Ok(Kind::Object("Oem".to_owned())),
            TypeClass::ComplexType => Ok(Kind::Object(rust())),
            TypeClass::SimpleType => simple_kind(&name.to_string()),
            TypeClass::TypeDefinition if self.enumeration(name).is_some() => Ok(Kind::Enum(rust())),
            TypeClass::TypeDefinition => {
                let found = self
                    .compiled
                    .type_definitions
                    .get(&name)
                    .ok_or("unknown type definition")?;
                simple_kind(&found.underlying_type.to_string())
            }
        }
    }

    fn actions_on(&self, binding: QualifiedName<'a>) -> Result<Vec<Action>, String> {
        let mut actions = Vec::new();
        for ((namespace, name), action) in self.compiled.actions.get(&binding).into_iter().flatten() {
            let (schema, name) = (namespace.to_string(), name.to_string());
            let parameters = action
                .parameters
                .iter()
                .map(|p| self.parameter(&schema, &name, p));
            actions.push(Action {
                wire: format!("{schema}.{name}"),
                parameters: parameters.collect::<Result<_, _>>()?,
            });
        }
        actions.sort_by(|a, b| a.wire.cmp(&b.wire));
        Ok(actions)
    }

    fn parameter(&self, schema: &str, action: &str, parameter: &Parameter<'a>) -> Result<Field, String> {
        let wire = parameter.name.to_string();
        let (many, kind) = match parameter.ptype {
            ParameterType::Entity(target) => {
                let name = target.name();
                let known = self
                    .root(name)
                    .map(|_| naming::type_name(&schema_of(name), name.name.inner()));
                (
                    matches!(target, OneOrCollection::Collection(_)),
                    Kind::Link(known),
                )
            }
            ParameterType::Type(ptype) => {
                let (info, name) = *ptype.inner();
                (
                    matches!(ptype, OneOrCollection::Collection(_)),
                    self.kind(info, name)
                        .map_err(|why| format!("{schema}.{action}, {wire}: {why}"))?,
                )
            }
        };
        Ok(Field {
            rust: naming::field_name(&wire),
            kind,
            many,
            access: Access::Write,
            nullable: parameter.nullable.into_inner(),
            required: parameter.required.into_inner(),
            required_on_create: false,
            range: self.facts.range(schema, action, &wire),
            wire,
        })
    }
}

/// Excerpts hold the properties marked for them; whole resources all but those meant for excerpts alone.
fn wanted(redfish: &RedfishProperty<'_>, excerpt: bool) -> bool {
    if excerpt {
        redfish.excerpt.is_some()
    } else {
        !redfish.is_excerpt_only.into_inner()
    }
}

fn nav_redfish<'n, 'a>(property: &'n NavProperty<'a>) -> &'n RedfishProperty<'a> {
    match property {
        NavProperty::Expandable(found) => &found.redfish,
        NavProperty::Reference { redfish, .. } => redfish,
    }
}

fn simple_kind(edm: &str) -> Result<Kind, String> {
    Ok(match edm {
        "Edm.Boolean" => Kind::Boolean,
        "Edm.Int16" | "Edm.Int32" | "Edm.Int64" | "Edm.SByte" | "Edm.Byte" => Kind::Integer,
        "Edm.Decimal" | "Edm.Double" | "Edm.Single" => Kind::Decimal,
        "Edm.String" => Kind::Text,
        "Edm.DateTimeOffset" => Kind::DateTime,
        "Edm.Duration" | "Edm.TimeOfDay" => Kind::Duration,
        "Edm.Guid" => Kind::Guid,
        other => return Err(format!("no rule for {other}")),
    })
}

/// A property that OData or Redfish adds to any resource.
fn annotation(wire: &str, kind: Kind) -> Field {
    Field {
        wire: wire.to_owned(),
        rust: naming::field_name(wire),
        kind,
        many: false,
        access: Access::Read,
        nullable: false,
        required: false,
        required_on_create: false,
        range: Range::default(),
    }
}
