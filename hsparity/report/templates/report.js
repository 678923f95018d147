(function(){
'use strict';
var root=document.documentElement,get=function(id){return document.getElementById(id)},theme=get('theme'),map=get('map');
function dark(){return root.dataset.theme?root.dataset.theme==='dark':matchMedia('(prefers-color-scheme: dark)').matches}
function name(){theme.textContent=dark()?'Light':'Dark'}
theme.hidden=false;name();theme.onclick=function(){root.dataset.theme=dark()?'light':'dark';name()};
// A link to an explanation opens it.
function unfold(){var e=get(location.hash.slice(1));if(e&&e.tagName==='DETAILS'){e.open=true;e.scrollIntoView()}}
addEventListener('hashchange',unfold);unfold();
if(!map)return;
var D=JSON.parse(get('data').textContent),out=get('read'),cur=get('cursor'),pick=get('prompt'),B=D.box,images=Array.from(map.querySelectorAll('.cells')),first=images.map(function(i){return i.getAttribute('href')});
function bytes(s){return Uint8Array.from(atob(s),function(c){return c.charCodeAt(0)})}
function plain(s){return s.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,function(c){return '\\u'+c.charCodeAt(0).toString(16).padStart(4,'0')})}
// A view of the map: w columns of k tokens, palette indices q by band, prompts p, and per column a position and its text.
var whole={w:D.w,k:D.k,q:D.q.map(bytes),p:D.p,at:D.at,t:D.t},V=whole,x=0,y=D.h>>1,band=0,result=null,wait;
function cut(rows,w,a,b,f){var o=new Uint8Array(D.h*(b-a));for(var r=0;r<D.h;r++)for(var c=a;c<b;c++)o[r*(b-a)+c-a]=f(rows[r*w+c]);return o}
function half(h){var e=h>>10&31,m=h&1023,s=h>>15?-1:1;return e===31?(m?NaN:s*Infinity):e?s*Math.pow(2,e-15)*(1+m/1024):s*Math.pow(2,-14)*m/1024}
function index(v){return v!==v?1:v>D.low?2+Math.round(Math.min(1,Math.max(0,(v-D.low)/(D.d-D.low)))*D.n):0}
function unpacked(){return result=result||new Response(new Blob([bytes(get('result').textContent)]).stream().pipeThrough(new DecompressionStream('gzip'))).json()}
function view(i){var p=D.p[i],a=p[1],b=p[2];
 if(!D.fine)return Promise.resolve({w:b-a,k:D.k,q:whole.q.map(function(q){return cut(q,D.w,a,b,function(v){return v})}),p:[[p[0],0,b-a]],at:D.at.slice(a,b),t:D.t.slice(a,b)});
 return unpacked().then(function(R){var m=R.map,s=m.prompts[i];a=s[1];b=s[2];
  function band(v){var u=bytes(v.base64).buffer,f=v.dtype==='float16';return cut(f?new Uint16Array(u):new Float32Array(u),v.shape[1],a,b,function(n){return index(f?half(n):n)})}
  return {w:b-a,k:m.column_tokens,q:[m.excess_kc,m.undone_kc].filter(Boolean).map(band),p:[[p[0],0,b-a]],
   at:Array.from(new Int32Array(bytes(m.positions_c.base64).buffer)).slice(a,b),t:m.texts.slice(a,b).map(function(s){return s?'"'+plain(s)+'"':''})}})}
function paint(){images.forEach(function(image,n){if(V===whole){image.setAttribute('href',first[n]);return}
 var pal=bytes(D.pal[n%2]),q=V.q[n>>1],f=Math.max(1,Math.min(6,Math.floor(1200/V.w))),c=document.createElement('canvas'),g=c.getContext('2d');
 c.width=V.w*f;c.height=D.h*6;var im=g.createImageData(c.width,c.height);
 for(var r=0;r<c.height;r++)for(var k=0;k<c.width;k++){var i=3*q[Math.floor(r/6)*V.w+Math.floor(k/f)],o=4*(r*c.width+k);im.data[o]=pal[i];im.data[o+1]=pal[i+1];im.data[o+2]=pal[i+2];im.data[o+3]=255}
 g.putImageData(im,0,0);image.setAttribute('href',c.toDataURL())});
 get('ruled').style.display=V===whole?'':'none';cur.style.display='none'}
function choose(i){pick.value=String(i);x=0;return (i<0?Promise.resolve(whole):view(i)).then(function(v){V=v;paint();
 get('span').textContent=i<0?'':'prompt '+D.p[i][0]+(V.k>1?', '+V.k+' tokens a column':', token by token')})}
function says(v){return v===0?'within the '+D.over:v===1?'not compared':(Math.pow(10,D.low+(v-2)/D.n*(D.d-D.low))).toPrecision(2)+'× '+D.over}
function at(p){return V.at.length?V.at[x]:(x-p[1])*V.k}
function where(p){if(!p)return 'column '+x;
 return 'prompt '+p[0]+', '+(V.k>1&&V.at.length?'of '+V.k+' tokens the one at ':'token ')+at(p)+(V.t[x]?' '+V.t[x]:'')}
function show(){var k=D.b[y],w=B[2]/V.w,h=B[3]/D.h,p=V.p.find(function(p){return x>=p[1]&&x<p[2]});cur.style.display='';
 Array.from(cur.children).forEach(function(r){r.setAttribute('x',B[0]+x*w-1);r.setAttribute('y',B[1]+band*B[4]+y*h-1);r.setAttribute('width',w+2);r.setAttribute('height',h+2)});
 out.textContent='boundary '+k+(k?' (layer '+(k-1)+')':' (embeddings)')+', '+where(p)+': '+says(V.q[0][y*V.w+x])+(V.q[1]?' as claimed, '+says(V.q[1][y*V.w+x])+' undone':'');
 clearTimeout(wait);if(p){var link='#'+new URLSearchParams({layer:k-1,prompt:p[0],token:at(p)});wait=setTimeout(function(){try{history.replaceState(null,'',link)}catch(e){}},300)}}
// #layer=30&prompt=p3&token=37 puts the cursor there; layer -1 is the embeddings.
function follow(){var s=new URLSearchParams(location.hash.slice(1)),i=D.p.findIndex(function(p){return p[0]===s.get('prompt')}),row=D.b.indexOf(Number(s.get('layer'))+1);
 if(!s.has('layer')||row<0)return;
 choose(i>=0&&!pick.parentNode.hidden?i:-1).then(function(){y=row;var p=i<0?null:V===whole?D.p[i]:V.p[0],t=Number(s.get('token')),best=Infinity;
  if(p)for(var c=p[1];c<p[2];c++){var d=Math.abs((V.at.length?V.at[c]:(c-p[1])*V.k)-t);if(d<best){best=d;x=c}}
  map.scrollIntoView({block:'center'});map.focus({preventScroll:true});show()})}
D.p.forEach(function(p,i){pick.add(new Option(p[0],String(i)))});
pick.parentNode.hidden=!D.pal.length;pick.onchange=function(){choose(Number(pick.value))};
map.tabIndex=0;out.textContent='Point at the map, or focus it and use the arrow keys.';
map.addEventListener('mousemove',function(e){var p=map.createSVGPoint();p.x=e.clientX;p.y=e.clientY;p=p.matrixTransform(map.getScreenCTM().inverse());
 var k=V.q[1]&&p.y>=B[1]+B[4]?1:0,i=Math.floor((p.x-B[0])/B[2]*V.w),j=Math.floor((p.y-B[1]-k*B[4])/B[3]*D.h);
 if(i>=0&&i<V.w&&j>=0&&j<D.h){x=i;y=j;band=k;show()}});
map.addEventListener('keydown',function(e){var s={ArrowLeft:[-1,0],ArrowRight:[1,0],ArrowUp:[0,-1],ArrowDown:[0,1],Home:[-V.w,0],End:[V.w,0],PageUp:[0,-D.h],PageDown:[0,D.h]}[e.key];
 if(!s)return;e.preventDefault();x=Math.min(V.w-1,Math.max(0,x+s[0]));y=Math.min(D.h-1,Math.max(0,y+s[1]));show()});
map.addEventListener('focus',show);addEventListener('hashchange',follow);follow();
})();
