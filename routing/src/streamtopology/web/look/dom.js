/* Nodes are built and patched here. There is no parsing of HTML anywhere: a text of any content becomes a text node. */
const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

const isWanted = (child) => child !== null && child !== undefined && child !== false;
const wanted = (children) => children.flat(Infinity).filter(isWanted);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'place') {
      for (const [property, length] of Object.entries(value)) node.style.setProperty(property, length);
    } else {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...wanted(children));
  return node;
}

/* An element; `place` has properties of its style, which the content policy lets scripts set, but no markup. */
export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/* Makes the children of `node` equal to `fresh`, and keeps the nodes: focus, hover and transitions outlive an update. */
export function patch(node, ...fresh) {
  const children = wanted(fresh).map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
  children.forEach((child, index) => {
    const current = node.childNodes[index];
    if (current) patchOne(current, child);
    else node.append(child);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

function patchOne(current, fresh) {
  if (current.nodeType !== fresh.nodeType || current.nodeName !== fresh.nodeName) {
    current.replaceWith(fresh);
    return;
  }
  if (current.nodeType === Node.TEXT_NODE) {
    if (current.data !== fresh.data) current.data = fresh.data;
    return;
  }
  for (const { name } of [...current.attributes]) {
    if (name !== 'style' && !fresh.hasAttribute(name)) current.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== 'style' && current.getAttribute(name) !== value) current.setAttribute(name, value);
  }
  if (current.style.cssText !== fresh.style.cssText) current.style.cssText = fresh.style.cssText;
  patch(current, ...fresh.childNodes);
}
