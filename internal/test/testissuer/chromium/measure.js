// SPDX-License-Identifier: Apache-2.0
(() => {
  const flaws = [], width = document.documentElement.clientWidth;
  const name = (e) => `${e.tagName.toLowerCase()} "${(e.innerText || e.value || e.id || '').trim().slice(0, 40)}"`;
  const parse = (color) => {
    const parts = /^rgba?\(([^)]+)\)$/.exec(color);
    if (!parts) throw new Error(`a colour that is not understood: ${color}`);
    const [r, g, b, a = 1] = parts[1].split(',').map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1,
  });
  const canvas = () => matchMedia('(prefers-color-scheme: dark)').matches ? { r: 18, g: 18, b: 18, a: 1 } : { r: 255, g: 255, b: 255, a: 1 };
  const ground = (e) => e ? over(parse(getComputedStyle(e).backgroundColor), ground(e.parentElement)) : canvas();
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (color, under) => {
    const [low, high] = [luminance(over(parse(color), under)), luminance(under)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const demand = (e, what, got, want) => {
    if (got < want) flaws.push(`${name(e)}: contrast of ${what} is ${got.toFixed(2)}, less than ${want}`);
  };

  for (const e of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (style.visibility == 'hidden' || box.width == 0) continue;
    if ([...e.childNodes].some((n) => n.nodeType == Node.TEXT_NODE && n.data.trim()) || e.value) demand(e, 'text', contrast(style.color, ground(e)), 4.5);
    if (e.matches('input[type=text]')) demand(e, 'border', contrast(style.borderTopColor, ground(e.parentElement)), 3);
    if (e.matches('input, button, select') && (box.width < 24 || box.height < 24)) flaws.push(`${name(e)}: ${box.width} by ${box.height}, less than 24 by 24`);
    if (box.right > width + 0.5 && !e.closest('pre')) flaws.push(`${name(e)}: ends at ${box.right}, the window at ${width}`);
  }
  const wide = document.documentElement.scrollWidth;
  if (wide > width) flaws.push(`the page is ${wide} wide, the window ${width}`);
  return flaws;
})()
